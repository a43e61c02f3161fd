"""Who gets into a full engine, who has to go, and who leaves: tiny worlds with answers computed by hand."""

from dataclasses import replace

import pytest

from router.sim.engine import DoesNotFit, Engine
from tests.sim.tiny_engine import ROOMY, TINY, ask, end_of, ids, run, run_out, tokens_of

# Who gets in


def test_a_prompt_waits_until_it_fits_as_a_whole():
    """a holds 7 blocks of 10 (its prompt and the one it grows into); b needs 4 and waits, and c behind it too."""
    engine = Engine(TINY)
    engine.submit(ask("a", ids(0, 96), 10), 0.0)
    engine.submit(ask("b", ids(1_000, 64)), 0.0)
    engine.submit(ask("c", ids(2_000, 16)), 0.0)
    events = engine.advance(0.1)
    assert [event.request_id for event in events if event.request_id != "a"] == []
    assert (engine.running, engine.waiting) == (1, 2)
    assert engine.kv_usage_ratio == pytest.approx(0.7)
    events = engine.advance(9.0)
    end_s = end_of(events, "a").at_s
    assert tokens_of(events, "b")[0].at_s == pytest.approx(end_s + 64 / 8_000)
    assert tokens_of(events, "c")[0].at_s == pytest.approx(end_s + 80 / 8_000)


def test_idle_cached_blocks_that_are_hit_count_as_taken():
    """a leaves 4 cached blocks. b holds 6, so 4 are free; a2 hits those 4 and needs a fifth: it waits for b."""
    engine = Engine(TINY)
    run(engine, ask("a", ids(0, 64)))
    engine.submit(ask("b", ids(1_000, 90), 3), 0.0)
    engine.submit(ask("a2", ids(0, 80)), 0.0)
    b_started_s = engine.next_event_s()
    assert b_started_s is not None
    engine.advance(b_started_s)
    assert (engine.pool.free_blocks, engine.running, engine.waiting) == (4, 1, 1)
    events = run_out(engine)
    assert end_of(events, "a2").cached_tokens == 64
    assert tokens_of(events, "a2")[0].at_s > end_of(events, "b").at_s


def test_max_num_seqs():
    engine = Engine(replace(ROOMY, max_num_seqs=2))
    for number in range(3):
        engine.submit(ask(str(number), ids(1_000 * number, 80), 10), 0.0)
    engine.advance(0.021)
    assert (engine.running, engine.waiting) == (2, 1)
    events = engine.advance(9.0)
    assert tokens_of(events, "2")[0].at_s > end_of(events, "0").at_s


def test_a_full_line_refuses():
    engine = Engine(replace(ROOMY, max_num_queued_reqs=1))
    assert engine.submit(ask("1", ids(0, 800)), 0.0)
    assert engine.submit(ask("2", ids(0, 800)), 0.0)
    assert not engine.submit(ask("3", ids(0, 800)), 0.0)
    assert (engine.running, engine.waiting, engine.stats.rejected) == (1, 1, 1)
    assert engine.submit(ask("3", ids(0, 800)), 0.11)
    assert {event.request_id for event in engine.advance(9.0)} == {"1", "2", "3"}


def test_a_line_of_no_length_still_takes_what_starts_at_once():
    engine = Engine(replace(ROOMY, max_num_queued_reqs=0))
    assert engine.submit(ask("1", ids(0, 800)), 0.0)
    assert not engine.submit(ask("2", ids(0, 800)), 0.0)


def test_what_can_never_fit_is_refused():
    engine = Engine(TINY)
    assert TINY.capacity_tokens == 160
    assert engine.submit(ask("fits", ids(0, 150), 11), 0.0)
    for prompt, output in ((150, 12), (161, 1), (0, 5)):
        with pytest.raises(DoesNotFit):
            engine.submit(ask("x", ids(0, prompt), output), 0.0)
    assert end_of(engine.advance(9.0), "fits").generated_tokens == 11
    assert engine.waiting == 0


def test_a_live_id_cannot_be_used_twice():
    engine = Engine(TINY)
    engine.submit(ask("1", ids(0, 10)), 0.0)
    with pytest.raises(ValueError, match="live already"):
        engine.submit(ask("1", ids(0, 10)), 0.0)
    engine.advance(9.0)
    assert engine.submit(ask("1", ids(0, 10)), 9.0)


# Who has to go


def test_the_youngest_gives_way_and_computes_again():
    """a: 64 + 40 tokens, b: 64 + 40 tokens, 10 blocks: both hold 5 after their first token, and each needs a sixth.

    a's 17th token needs the sixth, when b has 16: b goes back. a takes b's partial block and, for its 33rd token, b's
    fourth, so b comes in at a's end with 80 known tokens of which 48 are cached, and computes 32 in 4 ms.
    """
    engine = Engine(TINY)
    engine.submit(ask("a", ids(0, 64), ids(500, 40)), 0.0)
    engine.submit(ask("b", ids(1_000, 64), ids(600, 40)), 0.0)
    events = engine.advance(100.0)
    assert engine.stats.preemptions == 1
    a, b = end_of(events, "a"), end_of(events, "b")
    assert [event.at_s for event in tokens_of(events, "b")[16:17]] == pytest.approx([a.at_s + 0.004])
    assert len([event for event in tokens_of(events, "b") if event.at_s < a.at_s]) == 16
    assert (a.generated_tokens, b.generated_tokens) == (40, 40)
    assert sum(event.count for event in tokens_of(events, "b")) == 40
    assert [event.first for event in tokens_of(events, "b")].count(True) == 1
    assert b.cached_tokens == 0
    assert engine.stats.prefix_queries_tokens == 128
    assert engine.stats.prompt_tokens == 128
    assert engine.stats.generation_tokens == 80
    assert engine.pool.used_blocks == 0


def test_a_preempted_request_is_the_first_to_come_in_again():
    engine = Engine(TINY)
    engine.submit(ask("a", ids(0, 64), 40), 0.0)
    engine.submit(ask("b", ids(1_000, 64), 40), 0.0)
    engine.submit(ask("c", ids(2_000, 64), 1), 0.01)
    events = engine.advance(100.0)
    assert engine.stats.preemptions == 1
    assert end_of(events, "c").at_s > end_of(events, "a").at_s
    resumed_s = min(event.at_s for event in tokens_of(events, "b") if event.at_s > end_of(events, "a").at_s)
    assert tokens_of(events, "c")[0].at_s > resumed_s


def test_the_growing_sequence_itself_may_be_the_youngest():
    """b (64 + 40) comes after a (90 + 60, alone on 6 blocks): b fills the 4 left and needs a fifth."""
    engine = Engine(TINY)
    engine.submit(ask("a", ids(0, 90), 60), 0.0)
    engine.submit(ask("b", ids(1_000, 64), 40), 0.0)
    events = engine.advance(100.0)
    assert end_of(events, "a").at_s < end_of(events, "b").at_s
    assert engine.stats.preemptions >= 1
    assert sum(event.count for event in tokens_of(events, "b")) == 40
    assert engine.pool.used_blocks == 0


def test_a_prefill_can_be_preempted_and_keeps_what_it_filled():
    """a needs its eighth block while b, 48 tokens on the last 3 blocks, is in a slow prefill."""
    engine = Engine(replace(TINY, prefill_tokens_per_s=100.0))
    engine.submit(ask("a", ids(0, 110), 30), 0.0)
    engine.advance(1.1)
    assert engine.running == 1
    engine.submit(ask("b", ids(1_000, 48), 1), 1.1)
    assert (engine.running, engine.kv_usage_ratio) == (2, 1.0)
    events = engine.advance(100.0)
    assert engine.stats.preemptions >= 1
    assert end_of(events, "b").generated_tokens == 1
    assert end_of(events, "b").at_s > end_of(events, "a").at_s


# Who leaves


def test_abort_in_decode_frees_and_is_not_heard_of_again():
    engine = Engine(TINY)
    engine.submit(ask("1", ids(0, 64), 90), 0.0)
    engine.advance(0.1)
    engine.abort("1", 0.1)
    assert (engine.running, engine.pool.used_blocks, engine.stats.aborted) == (0, 0, 1)
    assert engine.next_event_s() is None
    assert engine.advance(9.0) == []
    assert run(engine, ask("2", ids(0, 65))).cached_tokens == 64


def test_abort_drops_what_was_not_fetched_yet():
    engine = Engine(TINY)
    engine.submit(ask("1", ids(0, 64), 90), 0.0)
    engine.submit(ask("2", ids(1_000, 16), 1), 0.0)
    engine.abort("1", 5.0)
    assert {event.request_id for event in engine.advance(5.0)} == {"2"}


def test_abort_in_prefill_keeps_the_blocks_that_were_filled():
    """100 tokens/s: after 0.4 s 40 of 64 tokens are computed, two full blocks."""
    engine = Engine(replace(TINY, prefill_tokens_per_s=100.0))
    engine.submit(ask("1", ids(0, 64)), 0.0)
    engine.abort("1", 0.4)
    assert engine.pool.eviction_order()[:2] == [4, 3]
    assert run(engine, ask("2", ids(0, 64))).cached_tokens == 32


def test_abort_lets_the_next_one_in():
    engine = Engine(ROOMY)
    engine.submit(ask("1", ids(0, 8_000)), 0.0)
    engine.submit(ask("2", ids(20_000, 800)), 0.0)
    engine.abort("1", 0.5)
    (first,) = tokens_of(engine.advance(9.0), "2")
    assert first.at_s == pytest.approx(0.6)


def test_abort_of_a_waiting_or_unknown_request():
    engine = Engine(ROOMY)
    engine.submit(ask("1", ids(0, 800)), 0.0)
    engine.submit(ask("2", ids(5_000, 800)), 0.0)
    engine.abort("2", 0.01)
    engine.abort("nobody", 0.02)
    assert engine.stats.aborted == 1
    assert {event.request_id for event in engine.advance(9.0)} == {"1"}


def test_time_does_not_run_backwards():
    engine = Engine(ROOMY)
    engine.submit(ask("1", ids(0, 800)), 10.0)
    engine.advance(20.0)
    engine.submit(ask("2", ids(5_000, 800)), 15.0)
    (first,) = tokens_of(engine.advance(30.0), "2")
    assert first.at_s == pytest.approx(20.1)


def test_sums_for_means():
    engine = Engine(ROOMY)
    engine.submit(ask("1", ids(0, 800)), 0.0)
    engine.submit(ask("2", ids(5_000, 800)), 0.0)
    engine.advance(9.0)
    stats = engine.stats
    assert (stats.started, stats.first_tokens) == (2, 2)
    assert stats.queue_s_sum == pytest.approx(0.1)
    assert stats.ttft_s_sum == pytest.approx(0.3)
    assert stats.e2e_s_sum == pytest.approx(0.3)
