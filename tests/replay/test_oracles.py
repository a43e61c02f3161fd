"""Oracles and bounds: what no policy can beat."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.replay.contenders import names
from router.replay.plan import Result
from router.replay.run import Run, run
from router.replay.traces.types import TraceRequest
from router.sim.types import EngineConfig
from tests.replay.worlds import asked, plan, trace

# Turns of a few sessions that share a beginning: session, blocks, seconds since the request before.
turns = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12), st.floats(0.0, 3.0)), min_size=1, max_size=40)


def requests_of(drawn: list[tuple[int, int, float]], pause_s: float = 0.0) -> list[TraceRequest]:
    found, now = [], 0.0
    for session, blocks, since_s in drawn:
        now += since_s + pause_s
        found.append(asked(now, [1, 2, *range(1_000 * (session + 1), 1_000 * (session + 1) + blocks)]))
    return found


def hit_ratio(result: Result) -> float:
    prompt_tokens = sum(one.prompt_tokens for one in result.answered)
    return sum(one.cached_tokens for one in result.answered) / prompt_tokens


@pytest.mark.parametrize("policy", names())
@given(turns)
@settings(max_examples=10, deadline=None)
def test_no_policy_beats_a_cache_that_never_evicts(policy: str, drawn: list[tuple[int, int, float]]) -> None:
    small = EngineConfig(kv_tokens=400, block_tokens=10, prefill_tokens_per_s=100.0)
    result = run(plan(policy, engine=small), trace(*requests_of(drawn)))
    assert hit_ratio(result) <= result.ceiling_ratio + 1e-9
    assert result.pooled_ratio <= result.ceiling_ratio + 1e-9


@given(turns)
@settings(max_examples=15, deadline=None)
def test_one_after_the_other_the_pooled_oracle_has_all_that_can_be_had(drawn: list[tuple[int, int, float]]) -> None:
    requests = requests_of(drawn, pause_s=10.0)
    result = run(plan("oracle-pooled"), trace(*requests))
    assert hit_ratio(result) == pytest.approx(result.ceiling_ratio) == result.pooled_ratio


@pytest.mark.parametrize("policy", [name for name in names() if name != "oracle-pooled"])
@given(turns)
@settings(max_examples=3, deadline=None)
def test_one_after_the_other_nobody_has_more_than_the_pooled_oracle(
    policy: str, drawn: list[tuple[int, int, float]]
) -> None:
    requests = trace(*requests_of(drawn, pause_s=10.0))
    assert hit_ratio(run(plan(policy), requests)) <= hit_ratio(run(plan("oracle-pooled"), requests)) + 1e-9


@given(turns)
@settings(max_examples=15, deadline=None)
def test_the_oracle_of_content_predicts_what_is_reported(drawn: list[tuple[int, int, float]]) -> None:
    small = EngineConfig(kv_tokens=400, block_tokens=10, prefill_tokens_per_s=100.0)
    result = run(plan("oracle-content", engine=small), trace(*requests_of(drawn, pause_s=10.0)))
    # A router does not see what follows the last whole block, so a prompt that was there before seems to end in it.
    missed = [one.cached_tokens - one.predicted_tokens for one in result.answered]
    assert set(missed) <= {0, 10}


def test_the_oracle_of_content_sees_what_the_mirror_does_not() -> None:
    # A request in flight has computed nothing yet: the mirror counts its blocks in from its dispatch on.
    requests = [asked(0.0, range(30)), asked(0.1, range(900, 901)), asked(0.2, range(30))]
    believing, knowing = (
        run(plan(name, replicas=1), trace(*requests)) for name in ("affinity-unheld", "oracle-content")
    )
    assert [one.predicted_tokens for one in believing.answered][2] > 0
    assert [one.predicted_tokens for one in knowing.answered][2] == 0
    assert hit_ratio(knowing) == hit_ratio(believing) > 0


def test_engines_with_one_cache_go_on_when_it_has_room() -> None:
    # Together 39 usable blocks. The second request fits when the first one has ended, on the other engine.
    small = EngineConfig(kv_tokens=200, block_tokens=10, prefill_tokens_per_s=100.0, prefill_slowdown_per_seq=0.0)
    requests = [asked(0.0, range(18)), asked(0.1, range(50, 68)), asked(0.2, range(80, 98))]
    done = Run(plan("oracle-pooled", engine=small), trace(*requests))
    result = done.run()
    assert len(result.answered) == 3
    assert [engine.running + engine.waiting for engine in done.fleet.engines] == [0, 0]
