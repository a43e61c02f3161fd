"""Copies of blocks beside the GPU: what they hold, what loading them takes, what is counted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.sim.blocks import BlockPool
from router.sim.engine import Engine, EngineConfig
from router.sim.kept import Kept
from router.sim.tier import Tier
from tests.sim.tiny_engine import ask, ids, run

CONFIG = EngineConfig(
    kv_tokens=11 * 16, prefill_tokens_per_s=100.0, prefill_slowdown_per_seq=0.0, decode_s=1.0, decode_per_seq_s=0.0
)
"""10 usable blocks of 16 tokens, 100 tokens/s."""


def engine_with(tier: Tier) -> Engine:
    pool = BlockPool(CONFIG.num_blocks)
    return Engine(CONFIG, pool, Kept(pool, tier))


def test_what_the_gpu_evicted_is_loaded_and_not_computed():
    """9 blocks of b leave 1 of a's 4. a again: 1 from the GPU, 3 loaded at 400/s: 0.12 s, 1 token computed: 0.01 s."""
    engine = engine_with(Tier(100, load_tokens_per_s=400.0))
    assert run(engine, ask("a", ids(0, 64))).cached_tokens == 0
    begins_s = run(engine, ask("b", ids(1_000, 144))).at_s
    again = run(engine, ask("a2", ids(0, 65)))
    assert again.cached_tokens == 64
    assert again.at_s - begins_s == pytest.approx(48 / 400 + 1 / 100)
    assert (engine.stats.prefix_hits_tokens, engine.stats.external_hits_tokens) == (16, 48)


@pytest.mark.parametrize(("load_tokens_per_s", "pays"), [(100.0, None), (101.0, True), (99.0, False)])
def test_loading_pays_where_it_is_faster_than_computing(load_tokens_per_s: float, pays: bool | None):
    plain, tiered = Engine(CONFIG), engine_with(Tier(100, load_tokens_per_s))
    ends_s = []
    for engine in (plain, tiered):
        for name, start, tokens in (("a", 0, 64), ("b", 1_000, 144), ("a2", 0, 65)):
            end = run(engine, ask(name, ids(start, tokens)))
        ends_s.append(end.at_s)
    assert ends_s[1] == pytest.approx(ends_s[0]) if pays is None else (ends_s[1] < ends_s[0]) is pays


def test_a_tier_as_small_as_the_gpus_cache_holds_nothing_more():
    """Copies are made when blocks are filled: 10 of them, as in the GPU, lose the oldest in the same way."""
    engine = engine_with(Tier(10, load_tokens_per_s=1e9))
    run(engine, ask("a", ids(0, 64)))
    run(engine, ask("b", ids(1_000, 144)))
    assert run(engine, ask("a2", ids(0, 65))).cached_tokens == 16


def test_one_store_for_two_engines():
    store = Tier(100, load_tokens_per_s=1e9)
    one, other = engine_with(store), engine_with(store)
    run(one, ask("a", ids(0, 64)))
    assert run(other, ask("a2", ids(0, 65))).cached_tokens == 64
    assert (other.stats.prefix_hits_tokens, other.stats.external_hits_tokens) == (0, 64)


def test_answers_are_copied_too():
    engine = engine_with(Tier(100, load_tokens_per_s=1e9))
    answer = ids(500, 33)
    run(engine, ask("a", ids(0, 16), answer))
    run(engine, ask("b", ids(1_000, 150)))
    assert run(engine, ask("a2", ids(0, 16) + answer + ids(700, 20))).cached_tokens == 48


def test_the_tail_goes_before_the_head():
    tier = Tier(4, 1.0)
    tier.hold([1, 2, 3])
    tier.hold([7, 8])
    assert [tier.found([1, 2, 3], 0, 3), tier.found([7, 8], 0, 2), len(tier)] == [2, 2, 4]


def test_found_begins_behind_what_the_gpu_holds_and_ends_at_the_limit():
    tier = Tier(9, 1.0)
    tier.hold([3, 4, 5])
    assert [tier.found([1, 2, 3, 4, 5], first, limit) for first, limit in ((2, 5), (2, 4), (1, 5), (4, 9))] == [
        3, 2, 0, 1
    ]  # fmt: skip


@given(st.lists(st.lists(st.integers(0, 12), unique=True, max_size=6), max_size=20), st.integers(1, 8))
def test_it_never_holds_more_than_it_has_room_for_and_the_last_ones_are_there(uses: list[list[int]], room: int):
    tier = Tier(room, 1.0)
    for hashes in uses:
        tier.hold(hashes)
        assert len(tier) <= room
        assert tier.found(hashes, 0, len(hashes)) == min(len(hashes), room)
