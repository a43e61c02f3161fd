import tracemalloc
from random import Random

from router.core.bounded import LINK_BYTES, BoundedMap


def test_it_forgets_the_least_recently_used_above_its_limit() -> None:
    links: BoundedMap[str] = BoundedMap(2)
    links.put(1, "a")
    links.put(2, "b")
    assert links.get(1) == "a"
    links.put(3, "c")
    assert (links.get(1), links.get(2), links.get(3)) == ("a", None, "c")
    assert len(links) == 2


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
