"""One engine in tiny worlds with answers computed by hand: what is reused, and when things happen."""

from dataclasses import replace

import pytest

from router.sim.engine import Engine, EngineConfig, Event, Finished, SimRequest, Tokens
from tests.sim.tiny_engine import ROOMY, TINY, ask, end_of, ids, run, run_out, tokens_of

# What is reused


def test_turn_two_hits_turn_one_rounded_down_to_full_blocks():
    """Measured on a real vLLM: turn 1 of 2,182 prompt tokens; in turn 2 prefix_cache_hits_total rose by 2,176."""
    engine = Engine(ROOMY)
    first = ids(0, 2_182)
    answer = ids(50_000, 8)
    assert run(engine, ask("1", first, answer)).cached_tokens == 0
    assert run(engine, ask("2", first + answer + ids(60_000, 40))).cached_tokens == 2_176
    assert engine.stats.prefix_hits_tokens == 2_176
    assert engine.stats.prefix_queries_tokens == 2_182 + 2_182 + 8 + 40


def test_the_blocks_of_vllm_facts():
    """Blocks of 32, an answer of 40 tokens that the next prompt words differently, then eviction."""
    engine = Engine(EngineConfig(kv_tokens=320 * 32, block_tokens=32))
    turn_1 = ids(0, 1_569)
    turn_2 = turn_1 + ids(10_000, 68)
    turn_3 = turn_2 + ids(20_000, 69)
    prompts = (turn_1, turn_2, turn_3, turn_1)
    assert [run(engine, ask("turn", prompt, 40)).cached_tokens for prompt in prompts] == [0, 1_568, 1_632, 1_568]
    for other in range(7):
        run(engine, ask(f"other-{other}", ids(1_000_000 * (other + 1), 1_500), 40))
    assert run(engine, ask("late", turn_1, 40)).cached_tokens == 0


def test_the_last_token_of_a_prompt_is_always_computed():
    engine = Engine(TINY)
    run(engine, ask("1", ids(0, 48)))
    assert run(engine, ask("2", ids(0, 48))).cached_tokens == 32
    assert run(engine, ask("3", ids(0, 49))).cached_tokens == 48


@pytest.mark.parametrize(("output", "cached"), [(16, 16), (17, 32), (18, 32), (32, 32), (33, 48)])
def test_blocks_filled_by_generation_are_reused_but_the_last_token_was_never_computed(output: int, cached: int):
    engine = Engine(TINY)
    answer = ids(500, output)
    run(engine, ask("1", ids(0, 16), answer))
    assert run(engine, ask("2", ids(0, 16) + answer + ids(700, 20))).cached_tokens == cached


def test_scope_is_part_of_the_prefix():
    engine = Engine(TINY)
    run(engine, ask("1", ids(0, 48), salt=1))
    assert run(engine, ask("2", ids(0, 48), salt=2)).cached_tokens == 0
    assert run(engine, ask("3", ids(0, 48), salt=1)).cached_tokens == 32


def test_the_oldest_request_loses_its_tail_first():
    """10 blocks: a and b of 4 blocks each leave 2; c needs 3, so the last block of a goes.

    a2 holds the 3 that are left of a and takes 2 more: the last two of b.
    """
    engine = Engine(TINY)
    run(engine, ask("a", ids(0, 64)))
    run(engine, ask("b", ids(1_000, 64)))
    run(engine, ask("c", ids(2_000, 48)))
    assert engine.pool.evicted_blocks == 1
    assert run(engine, ask("a2", ids(0, 65))).cached_tokens == 48
    assert run(engine, ask("b2", ids(1_000, 65))).cached_tokens == 32


def test_a_hit_makes_a_prefix_young_again():
    """After a, b and a again, c evicts b's blocks and none of a's."""
    engine = Engine(TINY)
    run(engine, ask("a", ids(0, 64)))
    run(engine, ask("b", ids(1_000, 64)))
    assert run(engine, ask("a2", ids(0, 65))).cached_tokens == 64
    run(engine, ask("c", ids(2_000, 64)))
    assert run(engine, ask("a3", ids(0, 65))).cached_tokens == 64
    assert run(engine, ask("b2", ids(1_000, 65))).cached_tokens < 64


def test_reset_forgets_the_cache_but_not_while_a_request_runs():
    engine = Engine(TINY)
    run(engine, ask("1", ids(0, 48)))
    engine.submit(ask("2", ids(0, 48)), 0.0)
    assert not engine.reset_prefix_cache()
    run_out(engine)
    assert engine.reset_prefix_cache()
    assert run(engine, ask("3", ids(0, 48))).cached_tokens == 0


def test_requests_known_by_block_identities():
    config = EngineConfig(kv_tokens=512 * 20, block_tokens=512)
    engine = Engine(config)
    run(engine, SimRequest.from_block_hashes("1", [7, 8], 1_100, 10))
    assert run(engine, SimRequest.from_block_hashes("2", [7, 8, 9], 1_600, 10)).cached_tokens == 1_024
    assert run(engine, SimRequest.from_block_hashes("3", [7, 8, 9], 1_600, 10, salt=1)).cached_tokens == 0


def test_identities_beyond_the_prompt_name_the_answers_blocks():
    engine = Engine(EngineConfig(kv_tokens=512 * 20, block_tokens=512))
    run(engine, SimRequest.from_block_hashes("1", [7, 8], 512, 513))
    assert run(engine, SimRequest.from_block_hashes("2", [7, 8, 9], 1_600, 1)).cached_tokens == 1_024


# When


def test_times_of_one_request():
    """800 tokens at 8,000/s: 0.1 s. Then 20.3 ms a token."""
    engine = Engine(ROOMY)
    engine.submit(ask("1", ids(0, 800), 4), 10.0)
    assert (engine.running, engine.waiting) == (1, 0)
    assert engine.next_event_s() == pytest.approx(10.1)
    assert engine.advance(10.09) == []
    events = engine.advance(11.0)
    assert [(event.first, event.count) for event in tokens_of(events, "1")] == [
        (True, 1), (False, 1), (False, 1), (False, 1)
    ]  # fmt: skip
    assert [event.at_s for event in events] == pytest.approx([10.1, 10.1203, 10.1406, 10.1609, 10.1609])
    assert end_of(events, "1") == Finished("1", events[-1].at_s, "length", 0, 800, 4)
    assert engine.next_event_s() is None
    assert engine.running == 0


def test_cached_tokens_cost_no_prefill():
    engine = Engine(ROOMY)
    engine.submit(ask("1", ids(0, 800)), 0.0)
    engine.advance(5.0)
    engine.submit(ask("2", ids(0, 880)), 5.0)
    (first,) = tokens_of(engine.advance(9.0), "2")
    assert first.at_s == pytest.approx(5.0 + 80 / 8_000)
    assert first.cached_tokens == 800


def test_prefill_is_one_line_in_order_of_arrival():
    engine = Engine(ROOMY)
    for number, start in enumerate((0, 5_000, 9_000)):
        engine.submit(ask(str(number), ids(start, 800)), 0.0)
    assert (engine.running, engine.waiting) == (1, 2)
    firsts = [event.at_s for event in engine.advance(9.0) if isinstance(event, Tokens)]
    assert firsts == pytest.approx([0.1, 0.2, 0.3])


def test_decoding_sequences_slow_prefill_and_each_other():
    """From 0.1 s one sequence decodes. The second prompt then takes 800 / (8,000 / 1.015) = 0.1015 s, to 0.2015 s.

    Up to there the first got 0.1015 / 0.0203 = 5 tokens more; from there on both get one in 20.6 ms.
    """
    engine = Engine(ROOMY)
    engine.submit(ask("1", ids(0, 800), 8), 0.0)
    engine.submit(ask("2", ids(5_000, 800), 8), 0.0)
    events = engine.advance(9.0)
    assert tokens_of(events, "2")[0].at_s == pytest.approx(0.2015)
    assert end_of(events, "1").at_s == pytest.approx(0.2015 + 2 * 0.0206)
    assert end_of(events, "2").at_s == pytest.approx(0.2015 + 2 * 0.0206 + 5 * 0.0203)


def test_stream_interval_tells_the_first_token_and_the_rest_at_once():
    engine = Engine(replace(ROOMY, stream_interval=4))
    engine.submit(ask("1", ids(0, 800), 10), 0.0)
    events = engine.advance(9.0)
    assert [event.count for event in tokens_of(events, "1")] == [1, 4, 4, 1]
    assert tokens_of(events, "1")[1].at_s == pytest.approx(0.1 + 4 * 0.0203)


def test_the_interval_changes_no_time():
    """a and b do not fit together: b is preempted, and must not lose tokens that were not told yet."""
    ends = []
    for interval in (1, 3, 1_000):
        engine = Engine(replace(TINY, stream_interval=interval))
        engine.submit(ask("a", ids(0, 64), 40), 0.0)
        engine.submit(ask("b", ids(1_000, 60), 44), 0.0)
        events = engine.advance(9.0)
        ends.append([end_of(events, name).at_s for name in "ab"])
        assert engine.stats.preemptions == 1
        assert engine.stats.generation_tokens == 84
    assert ends[1] == pytest.approx(ends[0])
    assert ends[2] == pytest.approx(ends[0])


def test_looking_at_the_engine_in_between_changes_nothing():
    requests = [ask(str(n), ids(1_000 * n, 30 + 7 * n), 20 + n) for n in range(6)]

    def events(polls: int) -> list[Event]:
        engine, told = Engine(TINY), []
        for n, request in enumerate(requests):
            engine.submit(request, 0.01 * n)
        for poll in range(polls):
            told += engine.advance(poll * 0.013)
        return told + engine.advance(100.0)

    assert events(0) == events(500)


def test_no_output_still_tells_that_prefill_ended():
    engine = Engine(TINY)
    engine.submit(ask("1", ids(0, 80), 0), 0.0)
    events = engine.advance(1.0)
    assert events == [Tokens("1", 0.01, True, 0, 0), Finished("1", 0.01, "length", 0, 80, 0)]
    assert engine.stats.generation_tokens == 0


def test_the_reason_is_the_requests():
    engine = Engine(TINY)
    assert run(engine, ask("1", ids(0, 8), finish_reason="stop")).reason == "stop"
    assert engine.stats.finished == {"stop": 1, "length": 0}
