import tracemalloc
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from router.core.residency import ENTRY_BYTES, Mirror
from router.core.types import Prompt


def of_blocks(*hashes: int, size: int = 16) -> Prompt:
    return Prompt(list(hashes), [size * (index + 1) for index in range(len(hashes))], [], None)


def served(mirror: Mirror, prompt: Prompt, now: float, answer_bytes: int = 0) -> int:
    """Hold and release a prompt; return how many of its blocks were resident before."""
    matched = mirror.match(prompt.hashes)
    lease = mirror.acquire(prompt, matched)
    mirror.evict_to(mirror.capacity_bytes)
    mirror.release(lease, now, answer_bytes=answer_bytes)
    return matched


def test_a_world_of_eleven_blocks() -> None:
    mirror = Mirror()
    mirror.capacity_bytes = 11 * 16
    assert served(mirror, of_blocks(1, 2, 3, 4, 5), now=1) == 0
    assert served(mirror, of_blocks(1, 2, 3, 4, 5, 6), now=2) == 5
    assert served(mirror, of_blocks(1, 2, 7, 8), now=3) == 2  # 1 2 7 8 now younger than 3 4 5 6
    assert len(mirror) == 8
    assert served(mirror, of_blocks(10, 11, 12, 13, 14), now=4) == 0  # evicts 6 and 5, the tail of the oldest
    assert mirror.match([1, 2, 3, 4, 5, 6]) == 4
    assert mirror.match([1, 2, 7, 8]) == 4
    assert len(mirror) == 11


def test_blocks_in_use_are_never_evicted() -> None:
    mirror = Mirror()
    mirror.capacity_bytes = 4 * 16
    lease = mirror.acquire(of_blocks(1, 2, 3, 4), 0)
    served(mirror, of_blocks(5, 6, 7), now=1)
    assert mirror.match([1, 2, 3, 4]) == 4
    assert mirror.match([5, 6, 7]) == 0
    mirror.release(lease, now=2)
    assert mirror.match([1, 2, 3, 4]) == 4


def test_a_request_that_never_reached_the_engine_leaves_nothing() -> None:
    mirror = Mirror()
    served(mirror, of_blocks(1, 2), now=1)
    lease = mirror.acquire(of_blocks(1, 2, 3, 4), 2)
    mirror.release(lease, now=2, computed=False)
    assert mirror.match([1, 2, 3, 4]) == 2
    assert (mirror.held_bytes, mirror.idle_bytes) == (0, 2 * 16)


def test_a_failed_request_keeps_what_others_brought_meanwhile() -> None:
    mirror = Mirror()
    failing = mirror.acquire(of_blocks(1, 2, 3), 0)
    other = mirror.acquire(of_blocks(1, 2, 3), 3)
    mirror.release(failing, now=1, computed=False)
    mirror.release(other, now=2)
    assert mirror.match([1, 2, 3]) == 3


def test_the_answer_is_resident_behind_its_prompt_until_the_next_turn_names_it() -> None:
    mirror = Mirror()
    served(mirror, of_blocks(1, 2), now=1, answer_bytes=100)
    assert mirror.holds_answer(2)
    assert mirror.idle_bytes == 2 * 16 + 100
    served(mirror, of_blocks(1, 2, 3, 4), now=2)
    assert not mirror.holds_answer(2)
    assert mirror.idle_bytes == 4 * 16


def test_the_answer_is_evicted_before_its_prompt() -> None:
    mirror = Mirror()
    served(mirror, of_blocks(1, 2), now=1, answer_bytes=100)
    mirror.evict_entries(1)
    assert not mirror.holds_answer(2)
    assert mirror.match([1, 2]) == 2


def test_evidence_of_one_eviction_counts_for_all_older_blocks() -> None:
    mirror = Mirror()
    served(mirror, of_blocks(1, 2), now=1)
    served(mirror, of_blocks(3, 4), now=2)
    served(mirror, of_blocks(5, 6), now=3)
    lease = mirror.acquire(of_blocks(3, 4), 2)
    assert lease.stale_stamp == 2000
    assert mirror.evict_unused_since(lease.stale_stamp) == 2
    assert (mirror.match([1, 2]), mirror.match([3, 4]), mirror.match([5, 6])) == (0, 2, 2)


def test_a_restart_forgets_everything_and_old_leases_release_nothing() -> None:
    mirror = Mirror()
    lease = mirror.acquire(of_blocks(1, 2), 0)
    mirror.clear()
    fresh = mirror.acquire(of_blocks(1), 0)
    mirror.release(lease, now=1)
    assert mirror.match([1, 2]) == 1
    mirror.release(fresh, now=2)
    assert len(mirror) == 1


def test_an_entry_never_takes_more_memory_than_is_counted_for_it() -> None:
    chance = Random(1)
    hashes = [chance.getrandbits(64) for _ in range(180_000)]
    tracemalloc.start()
    try:
        mirror = Mirror()
        worst = 0.0
        for start in range(0, len(hashes), 500):
            # New integers each time, as a live router makes them.
            block = [int(str(value)) for value in hashes[start : start + 500]]
            served(mirror, Prompt(block, [512 * (index + 1) for index in range(500)], [], None), now=start)
            if start > 10_000:
                worst = max(worst, tracemalloc.get_traced_memory()[0] / len(mirror))
    finally:
        tracemalloc.stop()
    assert worst <= ENTRY_BYTES


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), max_size=12), st.integers(0, 3), st.integers(1, 6))
def test_a_guess_never_changes_the_match(served_before: list[tuple[int, int]], branch: int, length: int) -> None:
    mirror = Mirror()
    mirror.capacity_bytes = 9 * 16
    for now, (start, size) in enumerate(served_before):
        served(mirror, of_blocks(*(100 * start + index for index in range(size))), now=now)
    hashes = [100 * branch + index for index in range(length)]
    assert {mirror.match(hashes, guess) for guess in range(length + 1)} == {mirror.match(hashes)}


def test_what_another_request_has_computed_outlives_one_that_failed() -> None:
    mirror = Mirror()
    failing = mirror.acquire(of_blocks(1, 2), 0)
    computing = mirror.acquire(of_blocks(1, 2, 3), 2)
    mirror.release(computing, 1.0)
    mirror.release(failing, 2.0, computed=False)
    assert (mirror.match([1, 2, 3]), mirror.idle_bytes, mirror.held_bytes) == (3, 48, 0)
    mirror.evict_unused_since(1 << 60)
    assert (len(mirror), mirror.idle_bytes) == (0, 0)


def test_what_only_failed_requests_have_brought_is_forgotten_whoever_ends_last() -> None:
    mirror = Mirror()
    leases = [mirror.acquire(of_blocks(1, 2), 0), mirror.acquire(of_blocks(1, 2, 3), 2)]
    for number, lease in enumerate(leases):
        mirror.release(lease, float(number), computed=False)
    assert (len(mirror), mirror.idle_bytes, mirror.held_bytes) == (0, 0, 0)


def test_a_full_mirror_tells_for_how_long_what_goes_next_was_unused() -> None:
    mirror = Mirror()
    served(mirror, of_blocks(1, 2, 3), now=10)
    assert (mirror.fill_ratio, mirror.eviction_age_s(20)) == (None, None)  # its size is not known yet
    mirror.capacity_bytes = 10 * 16
    assert (mirror.fill_ratio, mirror.eviction_age_s(20)) == (0.3, None)  # nothing need be evicted
    served(mirror, of_blocks(4, 5, 6, 7, 8, 9, 10), now=15)
    assert (mirror.fill_ratio, mirror.eviction_age_s(20)) == (1.0, 10.0)
    served(mirror, of_blocks(11, 12, 13), now=20)  # evicts what was used at 10
    assert mirror.eviction_age_s(20) == 5.0
