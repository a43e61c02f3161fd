import tracemalloc
from array import array
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from router.core.engine_cache.cache import BLOCK_BYTES, EngineCache
from router.core.engine_cache.types import Held, Medium, Stored
from router.core.token_ids import TokenIds, token_scope
from tests.core.engine_cache.worlds import SCOPE, SIZE, prompt, stored


def test_a_world_of_four_blocks() -> None:
    cache = EngineCache()
    assert cache.held(prompt(range(16))) == Held(0)
    cache.stored(stored([901, 902, 903], range(12)))
    assert cache.held(prompt(range(16))) == Held(12)
    assert cache.held(prompt(range(11))) == Held(8)
    assert cache.held(prompt(range(12))) == Held(8), "the last token of a prompt is always computed"
    assert cache.held(prompt(range(13))) == Held(12)
    cache.stored(stored([904], range(12, 16), parent=903))
    assert cache.held(prompt(range(40))) == Held(16)
    cache.removed([903])
    assert cache.held(prompt(range(40))) == Held(8), "what follows a gap is not reused"
    assert len(cache) == cache.gpu_blocks == 3


def test_scopes_do_not_meet() -> None:
    cache = EngineCache()
    salted = token_scope("adapter", "tenant")
    cache.stored(Stored([901], None, array("I", range(4)), SIZE, salted))
    cache.stored(Stored([902], 901, array("I", range(4, 8)), SIZE, None))
    assert cache.held(prompt(range(9))) == Held(0)
    assert cache.held(prompt(range(9), salted)) == Held(8)


def test_a_block_that_depends_on_more_than_its_tokens_is_no_text() -> None:
    cache = EngineCache()
    cache.stored(Stored([901, 902], None, array("I", range(8)), SIZE, SCOPE, foreign=[0, 77]))
    assert cache.held(prompt(range(9))) == Held(4)
    cache.stored(Stored([903], 902, array("I", range(8, 12)), SIZE, None))
    assert cache.held(prompt(range(13))) == Held(4)


def test_two_copies_have_to_be_removed_twice() -> None:
    cache = EngineCache()
    cache.stored(stored([901], range(4)))
    cache.stored(stored([901], range(4)))
    assert cache.gpu_blocks == 2
    cache.removed([901])
    assert cache.held(prompt(range(5))) == Held(4)
    cache.removed([901])
    assert cache.held(prompt(range(5))) == Held(0)
    cache.removed([901])
    assert len(cache) == cache.gpu_blocks == 0


def test_each_block_counts_where_it_is_loaded_from() -> None:
    cache = EngineCache()
    cache.stored(stored([901, 902, 903, 904], range(16)))
    cache.stored(Stored([902, 903], None, array("I"), 0, None), Medium.CPU)  # such events name blocks alone
    cache.stored(Stored([904], None, array("I"), 0, None), Medium.DISK)
    assert cache.held(prompt(range(20))) == Held(16)
    cache.removed([903, 904])
    assert cache.held(prompt(range(20))) == Held(8, 4, 4)
    assert cache.held(prompt(range(20))).reloaded_tokens == 8
    cache.removed([902])
    assert cache.held(prompt(range(20))) == Held(4, 8, 4)
    cache.removed([902], Medium.CPU)
    assert cache.held(prompt(range(20))) == Held(4)


def test_behind_what_is_loaded_only_what_can_be_loaded_counts() -> None:
    cache = EngineCache()
    cache.stored(stored([901, 902, 903], range(12)))
    cache.stored(Stored([902], None, array("I"), 0, None), Medium.CPU)
    cache.removed([902])
    assert cache.held(prompt(range(13))) == Held(4, 4), "903 is on the GPU, but the engine does not look there again"


def test_clearing_empties_the_gpu_only() -> None:
    cache = EngineCache()
    cache.stored(stored([901, 902], range(8)))
    cache.stored(Stored([901], None, array("I"), 0, None), Medium.CPU)
    cache.cleared()
    assert cache.held(prompt(range(9))) == Held(0, 4)
    assert (len(cache), cache.gpu_blocks) == (1, 0)
    cache.forget()
    assert cache.held(prompt(range(9))) == Held(0)


def test_blocks_wait_for_their_parent() -> None:
    cache = EngineCache()
    cache.stored(stored([903], range(8, 12), parent=902))
    cache.stored(stored([902], range(4, 8), parent=901))
    cache.stored(stored([904], range(12, 16), parent=903))
    assert cache.held(prompt(range(20))) == Held(0)
    cache.removed([904])
    cache.stored(stored([901], range(4)))
    assert cache.held(prompt(range(20))) == Held(12), "904 was removed while it waited"
    assert len(cache) == 3


def test_a_name_without_tokens_is_known_once_its_tokens_are() -> None:
    cache = EngineCache()
    cache.stored(Stored([901], None, array("I"), 0, None), Medium.CPU)
    cache.stored(stored([902], range(4), parent=None))
    cache.stored(stored([901], range(4)))
    cache.removed([901, 902])
    assert cache.held(prompt(range(5))) == Held(0, 4)


def test_waiting_blocks_are_bounded() -> None:
    cache = EngineCache(limit_blocks=32)
    for number in range(10):
        cache.stored(stored([1000 + number], range(4), parent=2000 + number))
    for number in range(10):
        cache.stored(stored([2000 + number], range(100 + number, 104 + number)))
    known = [
        cache.held(TokenIds(array("I", [*range(100 + number, 104 + number), *range(5)]), SCOPE)).tokens
        for number in range(10)
    ]
    assert known == [4] * 8 + [8] * 2, "two of 32 may wait"


def test_blocks_are_bounded_and_the_first_go_first() -> None:
    cache = EngineCache(limit_blocks=3)
    cache.stored(stored([901, 902], range(8)))
    cache.stored(stored([911, 912], range(100, 108)))
    assert (len(cache), cache.dropped_blocks, cache.gpu_blocks) == (3, 1, 3)
    assert cache.held(prompt(range(9))) == Held(0)
    assert cache.held(prompt(range(100, 109))) == Held(8)
    cache.removed([901])
    assert len(cache) == 3


def test_blocks_of_another_size_are_passed_over() -> None:
    cache = EngineCache()
    cache.stored(stored([901], range(4)))
    cache.stored(Stored([902], None, array("I", range(8)), 8, SCOPE))
    cache.stored(Stored([903], None, array("I", range(3)), SIZE, SCOPE))
    assert len(cache) == 1


def test_thousands_that_wait_for_each_other_are_named_at_once() -> None:
    cache = EngineCache()
    for number in range(5_000, 0, -1):
        cache.stored(stored([number], range(4 * number, 4 * number + 4), parent=number - 1))
    cache.stored(stored([0], range(4)))
    assert cache.held(prompt(range(4 * 5_001 + 1))) == Held(4 * 5_001)


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.integers(1, 6), st.sampled_from(list(Medium))), max_size=40)
)
def test_what_is_told_and_taken_back_leaves_nothing(news: list[tuple[bool, int, int, Medium]]) -> None:
    """Any order of stores and removals of three prompts, then as many removals as there were copies."""
    cache, copies = EngineCache(), 0
    for stores, start, length, medium in news:
        hashes = [1 + 10 * start + index for index in range(length)]
        if stores:
            copies += 1
            cache.stored(stored(hashes, range(100 * start, 100 * start + SIZE * length)), medium)
        else:
            cache.removed(hashes, medium)
        held = [cache.held(prompt(range(100 * start, 100 * start + 25))).tokens for start in range(3)]
        assert sum(held) <= len(cache) * SIZE
    for _ in range(copies):
        for medium in Medium:
            cache.removed([1 + 10 * start + index for start in range(3) for index in range(6)], medium)
    assert (len(cache), cache.gpu_blocks) == (0, 0)
    assert all(cache.held(prompt(range(100 * start, 100 * start + 25))) == Held(0) for start in range(3))


@given(st.integers(0, 40), st.integers(0, 10))
def test_extending_a_prompt_never_shortens_what_is_held(length: int, more: int) -> None:
    cache = EngineCache()
    cache.stored(stored([901, 902, 903, 904, 905], range(20)))
    shorter, longer = (cache.held(prompt(range(size))).tokens for size in (length, length + more))
    assert shorter <= longer <= 20


def test_a_block_never_takes_more_memory_than_is_said() -> None:
    chance = Random(1)
    tracemalloc.start()
    try:
        cache = EngineCache()
        worst = 0.0
        for _ in range(400):
            tokens = array("I", (chance.randrange(1 << 17) for _ in range(SIZE * 100)))
            cache.stored(Stored([chance.getrandbits(64) for _ in range(100)], None, tokens, SIZE, SCOPE))
            if len(cache) > 10_000:
                worst = max(worst, tracemalloc.get_traced_memory()[0] / len(cache))
    finally:
        tracemalloc.stop()
    assert worst <= BLOCK_BYTES
