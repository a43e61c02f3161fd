"""Runs whose times are known by arithmetic."""

from __future__ import annotations

import pytest

from router.replay.chats import Chats
from router.replay.contenders import names
from router.replay.demand import Agents, ClosedLoop
from router.replay.plan import Plan
from router.replay.run import Run, run
from router.sim.types import EngineConfig
from tests.replay.worlds import ENGINE, asked, plan, trace


def test_three_requests_in_turn_over_two_replicas() -> None:
    first, second = range(9), range(20, 39)
    result = run(plan("rr"), trace(asked(0.0, first), asked(0.5, second), asked(2.0, [*first, 9, 10, 11, 12, 13])))
    by_arrival = sorted(result.answered, key=lambda one: one.arrived_s)
    assert [one.replica for one in by_arrival] == [0, 1, 0]
    assert [one.prompt_tokens for one in by_arrival] == [95, 195, 145]
    assert [one.cached_tokens for one in by_arrival] == [0, 0, 90]
    assert [one.ttft_s for one in by_arrival] == pytest.approx([0.95, 1.95, 0.55])
    assert [one.ended_s - one.first_s for one in by_arrival] == pytest.approx([0.25, 0.25, 0.25])
    assert [one.output_tokens for one in by_arrival] == [3, 3, 3]


def test_a_queue_forms_in_the_engine_without_one_in_the_router() -> None:
    result = run(plan("affinity-unheld", replicas=1), trace(asked(0.0, range(19)), asked(0.5, range(50, 69))))
    assert [one.ttft_s for one in result.answered] == pytest.approx([1.95, 3.4])
    assert [one.queued_s for one in result.answered] == [0.0, 0.0]


def test_what_a_busy_replica_has_no_room_for_waits_in_the_router() -> None:
    fast = EngineConfig(kv_tokens=100_000, block_tokens=10, prefill_tokens_per_s=8_000.0, prefill_slowdown_per_seq=0.0)
    long = 1_599
    requests = [asked(0.0, range(long)), asked(0.25, range(10_000, 10_000 + long))]
    both = ("affinity", "affinity-unheld")
    held, at_once = (run(plan(name, engine=fast, replicas=1), trace(*requests)) for name in both)
    first_s = (long * 10 + 5) / 8_000
    assert [one.queued_s for one in held.answered] == pytest.approx([0.0, first_s - 0.25])
    assert held.extra["longest_queue"] == 1
    assert [one.first_s for one in held.answered] == pytest.approx([one.first_s for one in at_once.answered])


def test_refused_requests_come_again_and_are_counted() -> None:
    fast = EngineConfig(kv_tokens=100_000, block_tokens=10, prefill_tokens_per_s=8_000.0, prefill_slowdown_per_seq=0.0)
    requests = trace(asked(0.0, range(1_599)), asked(0.5, range(10_000, 11_599)))
    again = run(plan("affinity", engine=fast, replicas=1, max_queue_wait_s=0.5), requests)
    # It would wait for 2 s of the first one's work, less 1 s of depth; it comes again at 1.5 and at 2.5 s.
    assert (len(again.answered), again.refused, again.extra["given_up"]) == (2, 2, 0)
    came_back = again.answered[1]
    assert (came_back.first_asked_s, came_back.queued_s) == (0.5, 0.0)
    assert came_back.arrived_s == pytest.approx(2.5, abs=0.01)
    once = run(plan("affinity", engine=fast, replicas=1, max_queue_wait_s=0.5, retries=1), requests)
    assert (len(once.answered), once.refused, once.extra["given_up"]) == (1, 2, 1)


def test_replicas_of_unequal_speed() -> None:
    result = run(plan("rr", speeds=(1.0, 2.0)), trace(asked(0.0, range(9)), asked(0.0, range(20, 29))))
    by_replica = sorted(result.answered, key=lambda one: one.replica)
    assert [one.ttft_s for one in by_replica] == pytest.approx([0.95, 0.475])
    assert [one.ended_s - one.first_s for one in by_replica] == pytest.approx([0.25, 0.125])


def test_speeds_go_round() -> None:
    fleet = Run(plan("rr", replicas=5, speeds=(1.0, 3.0)), trace(asked(0.0, [1]))).fleet
    assert [engine.config.prefill_tokens_per_s for engine in fleet.engines] == [100.0, 300.0, 100.0, 300.0, 100.0]


def test_only_what_comes_after_the_warm_up_counts() -> None:
    requests = [asked(30.0, range(9)), asked(90.0, [*range(9), 9])]
    result = run(plan("rr", replicas=1, warm_up_minutes=1.0), trace(*requests))
    assert [one.arrived_s for one in result.answered] == [90.0]
    assert result.answered[0].cached_tokens == 90
    assert result.ceiling_ratio == result.pooled_ratio == pytest.approx(90 / 105)


def test_what_comes_after_the_end_does_not_come() -> None:
    result = run(plan("rr", minutes=1.0), trace(asked(0.0, [1]), asked(59.0, [2]), asked(61.0, [3])))
    assert [one.arrived_s for one in result.answered] == [0.0, 59.0]


def test_what_fits_no_engine_is_not_sent() -> None:
    small = EngineConfig(kv_tokens=200, block_tokens=10, prefill_tokens_per_s=100.0)
    result = run(plan("affinity", engine=small), trace(asked(0.0, range(30)), asked(1.0, range(3))))
    assert [one.prompt_tokens for one in result.answered] == [35]
    assert result.extra["too_long"] == 1


def test_bounds_of_a_known_trace() -> None:
    requests = [asked(0.0, range(9)), asked(5.0, range(50, 59)), asked(10.0, range(9)), asked(15.0, range(3), more=0)]
    large = run(plan("rr"), trace(*requests))
    # 9 of the third's blocks; 2 of the last one's 3: its last token is computed.
    assert large.ceiling_ratio == large.pooled_ratio == pytest.approx((90 + 20) / (3 * 95 + 30))
    small = EngineConfig(kv_tokens=120, block_tokens=10, prefill_tokens_per_s=100.0)
    result = run(plan("rr", engine=small, replicas=1), trace(*requests))
    # 12 blocks: the second prompt leaves 3 of the first one's.
    assert result.ceiling_ratio == large.ceiling_ratio
    assert result.pooled_ratio == pytest.approx((30 + 20) / (3 * 95 + 30))


def test_a_session_in_closed_loop_thinks_after_each_answer() -> None:
    turns = [asked(3.0, range(9), session="a"), asked(13.0, range(12), session="a")]
    result = run(plan("affinity"), ClosedLoop("sessions", [turns]))
    first, second = result.answered
    assert first.ended_s == pytest.approx(3.0 + 0.95 + 0.25)
    assert second.arrived_s == pytest.approx(first.ended_s + 10.0)
    assert (second.replica, second.reason, second.cached_tokens) == (first.replica, "warm", 90)


def test_agents_never_leave() -> None:
    sessions = [[asked(0.0, range(n, n + 5)), asked(4.0, range(n, n + 8))] for n in (100, 200)]
    agents = Agents("agents", sessions, live=3, spread_s=10.0, most_tokens=1_000)
    result = run(plan("affinity", minutes=2.0), agents)
    assert result.answered[-1].arrived_s > 110.0
    assert result.ceiling_ratio > 0.5


def test_progress_only_grows_and_reaches_the_end() -> None:
    told: list[float] = []
    run(plan("rr", minutes=1.0), trace(asked(0.0, [1]), asked(50.0, [2])), told.append)
    assert told == sorted(told)
    assert (told[0], told[-1]) == (0.0, 1.0)


@pytest.mark.parametrize("policy", names())
def test_the_same_plan_and_workload_give_the_same_result(policy: str) -> None:
    requests = [asked(0.4 * n, range(n % 9 * 100, n % 9 * 100 + n % 13)) for n in range(80)]
    one, other = (run(plan(policy, replicas=3), trace(*requests)) for _ in range(2))
    assert one.answered == other.answered
    assert len(one.answered) == 80


def test_the_seed_makes_the_chats() -> None:
    first, second = (Plan("affinity", EngineConfig(), minutes=0.5, seed=seed) for seed in (3, 4))
    assert run(first, Chats(2.0, 60.0)).answered == run(first, Chats(2.0, 60.0)).answered
    assert run(first, Chats(2.0, 60.0)).answered != run(second, Chats(2.0, 60.0)).answered


@pytest.mark.parametrize("policy", names())
def test_nothing_is_left_at_the_end(policy: str) -> None:
    requests = [asked(0.05 * n, range(n % 7 * 100, n % 7 * 100 + n % 11)) for n in range(60)]
    done = Run(plan(policy, replicas=3), trace(*requests))
    result = done.run()
    assert len(result.answered) == 60
    assert done.under_way == 0
    assert [engine.running + engine.waiting + engine.pool.used_blocks for engine in done.fleet.engines] == [0, 0, 0]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"policy": "best"}, "no policy 'best'; there are affinity"),
        ({"routers": 2}, "rr is replayed as one router, not as 2"),
        ({"replicas": 0}, "at least one replica, not 0"),
        ({"speeds": (1.0, 0.0)}, "speeds are above 0, not 0"),
    ],
)
def test_plans_that_cannot_be_run(changes: dict[str, object], problem: str) -> None:
    policy = str(changes.pop("policy", "rr"))
    with pytest.raises(ValueError, match=problem):
        run(plan(policy, engine=ENGINE, **changes), trace(asked(0.0, [1])))
