import tracemalloc
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from router.core.bounded import LINK_BYTES, BoundedMap


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30))), st.integers(2, 20))
def test_the_last_used_half_of_the_limit_is_kept_and_never_more_than_the_limit(
    steps: list[tuple[bool, int]], limit: int
) -> None:
    links: BoundedMap[str] = BoundedMap(limit)
    used: list[int] = []
    for stores, key in steps:
        if stores:
            links.put(key, str(key))
        elif links.get(key) is None:
            continue
        used = [other for other in used if other != key] + [key]
        assert len(links) <= links.limit
        for recent in used[-(limit // 2) :]:
            assert links.last_known([recent], 1) == 1


def test_the_last_known_of_a_list_of_keys_is_found_by_position() -> None:
    links: BoundedMap[str] = BoundedMap(9)
    links.put(7, "a")
    assert links.last_known([5, 7, 9], 3) == 2
    assert links.last_known([5, 7, 9], 1) == 0


def test_an_entry_never_takes_more_memory_than_is_counted_for_it() -> None:
    chance, worst = Random(1), 0.0
    tracemalloc.start()
    try:
        links: BoundedMap[int] = BoundedMap(1 << 20)
        for count in range(1, 180_000):
            links.put(chance.getrandbits(64), chance.getrandbits(48))
            if count > 10_000 and count % 100 == 0:
                worst = max(worst, tracemalloc.get_traced_memory()[0] / count)
    finally:
        tracemalloc.stop()
    assert LINK_BYTES * 0.7 < worst <= LINK_BYTES
