"""Pinned sessions: held between turns, against everybody else, for a while and as far as there is room."""

from router.sim.blocks import BlockPool
from router.sim.engine import Engine, EngineConfig, SimRequest
from router.sim.kept import Kept
from router.sim.pins import PinRules, Pins
from tests.sim.tiny_engine import ask, end_of, ids, run, run_out

CONFIG = EngineConfig(
    kv_tokens=11 * 16, prefill_tokens_per_s=160.0, prefill_slowdown_per_seq=0.0, decode_s=1.0, decode_per_seq_s=0.0
)
"""10 usable blocks; a block is computed in 0.1 s."""


def engine_with(rules: PinRules) -> Engine:
    pool = BlockPool(CONFIG.num_blocks)
    return Engine(CONFIG, pool, Kept(pool, None, rules))


def test_a_pinned_session_survives_what_evicts_another():
    """a's 4 blocks are pinned. b and c take turns in the other 6; without the pin c would take a's."""
    pinned, plain = engine_with(PinRules(hold_s=60.0)), Engine(CONFIG)
    found = []
    for engine in (pinned, plain):
        run(engine, ask("a", ids(0, 64)))
        run(engine, ask("b", ids(1_000, 96)))
        run(engine, ask("c", ids(2_000, 96)))
        found.append(run(engine, ask("a2", ids(0, 65))).cached_tokens)
    assert found == [64, 0]


def test_a_turn_takes_the_place_of_the_pin_that_it_goes_on_from():
    engine = engine_with(PinRules(hold_s=60.0))
    run(engine, ask("a", ids(0, 48)))
    assert engine.pool.used_blocks == 3
    run(engine, ask("a2", ids(0, 80)))
    assert engine.pool.used_blocks == 5


def test_a_pin_ends_when_its_time_is_over():
    engine = engine_with(PinRules(hold_s=5.0))
    end = run(engine, ask("a", ids(0, 64)))
    engine.submit(ask("b", ids(1_000, 16)), end.at_s + 4.9)
    run_out(engine)
    assert engine.pool.used_blocks == 5
    engine.submit(ask("c", ids(2_000, 16)), end.at_s + 5.0)
    run_out(engine)
    assert engine.pool.used_blocks == 2


def test_what_finds_no_room_among_the_pins_is_not_pinned():
    """Half of 10 blocks may be pinned: a's 4, and not b's 2 beside them."""
    engine = engine_with(PinRules(hold_s=60.0, share_ratio=0.5))
    run(engine, ask("a", ids(0, 64)))
    run(engine, ask("b", ids(1_000, 32)))
    assert engine.pool.used_blocks == 4


def test_a_request_waits_for_what_runs_and_takes_pins_when_nothing_runs():
    """a is pinned with 5 of 10 blocks. c needs 8: while b runs it waits, then a's pin goes."""
    engine = engine_with(PinRules(hold_s=600.0))
    begins_s = run(engine, ask("a", ids(0, 80))).at_s
    engine.submit(ask("b", ids(1_000, 15), 4), begins_s)
    engine.submit(ask("c", ids(2_000, 128)), begins_s)
    events = run_out(engine)
    assert end_of(events, "c").at_s > end_of(events, "b").at_s
    assert run(engine, ask("a2", ids(0, 81))).cached_tokens < 80


def test_an_engine_full_of_pins_answers_everybody():
    engine = engine_with(PinRules(hold_s=1e9, share_ratio=1.0))
    for number in range(30):
        request = SimRequest(f"{number}", ids(number * 1_000, 16 * (1 + number % 8)), ids(5, 1 + number % 30))
        assert run(engine, request).generated_tokens == 1 + number % 30


def test_the_books_of_pins_and_pool_agree():
    pool = BlockPool(11)
    pins = Pins(pool, PinRules(hold_s=10.0, share_ratio=1.0))
    for start in (0, 100):
        blocks = pool.allocate(3)
        for offset, block in enumerate(blocks):
            pool.cache(block, start + offset)
        pool.release(blocks)
        pins.pin([start, start + 1, start + 2], now=float(start))
    assert (pins.used_blocks, pool.used_blocks) == (6, 6)
    pins.expire(100.0)
    assert (pins.used_blocks, pool.used_blocks) == (3, 3)
    pins.resume([100, 101, 102, 103])
    assert (pins.used_blocks, pool.used_blocks, pins.yield_oldest()) == (0, 0, False)


def test_one_turn_that_ends_twice_is_pinned_once():
    engine = engine_with(PinRules(hold_s=60.0))
    run(engine, ask("a", ids(0, 32)))
    run(engine, ask("a", ids(0, 32)))
    assert engine.pool.used_blocks == 2
