from __future__ import annotations

import tracemalloc
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.adapters.history.counting import MAX_MODELS, MAX_NAME
from router.adapters.history.showing import error_ratio, tally
from router.core.history import layout
from router.core.history.series import Name
from router.core.misses.types import Cause
from router.core.types import Decision, EngineReport, Reason, Usage
from tests.adapters.history.counted import World, turn
from tests.adapters.records import decision, record


def at(replica: str = "r0", matched_tokens: int = 480) -> Decision:
    return decision(replica, matched_tokens)


def of(world: World, kind: str, name: str, window: str = "5m") -> dict[str, Any]:
    world.history.roll()
    return tally(world.history.rolling.totals(window), world.history.series.find(Name(kind, name)))


def models(world: World) -> set[str]:
    world.history.roll()
    return set(world.history.series.kind(layout.MODEL))


def test_nothing_yet() -> None:
    shown = World().window()
    assert (shown["requests"], shown["hit_ratio"], shown["predicted_ratio"]) == (0, None, None)
    assert shown["saved_ttft_s"] is None
    assert (shown["causes"], shown["reasons"], shown["errors"]) == ([], {}, {})
    assert shown["ttft"]["warm"] == {"count": 0, "p50_s": None, "p95_s": None}
    assert shown["returns"]["in_time"] == [0] * 14


def test_what_engines_count_themselves_is_followed_from_the_first_look_on() -> None:
    world = World()

    def read(replica: str, queries: float, hits: float) -> dict[str, Any]:
        world.fleet.observe_engine(replica, EngineReport(prefix_queries_tokens=queries, prefix_hits_tokens=hits))
        return world.window()

    assert read("r0", 10_000, 9_000)["counter_ratio"] is None, "what it counted before is not of this window"
    read("r1", 0, 0)
    assert read("r0", 12_000, 10_000)["counter_ratio"] == 0.5
    assert read("r1", 2_000, 0)["counter_ratio"] == 0.25
    whole = read("r0", 400, 100)  # it was started anew
    assert (whole["counter_queries_tokens"], whole["counter_hits_tokens"]) == (4_400, 1_100)
    assert of(world, "replica", "r0")["counter_hits_tokens"] == 1_100
    assert of(world, "replica", "r1")["counter_queries_tokens"] == 2_000


def test_requests_and_tokens_are_counted_for_the_fleet_the_replica_and_the_model() -> None:
    world = World()
    for replica, model, cached in (("r0", "a", 464), ("r0", "b", 480), ("r1", "a", None)):
        usage = Usage(500, cached, 20, "stop")
        world.history.request_finished(record(decision=at(replica), model=model, usage=usage))
    whole = world.window()
    assert {name: whole[name] for name in whole if name in of(world, "model", "a")} == {
        "requests": 3,
        "failed": 0,
        "prompt_tokens": 1_500,
        "predicted_cached_tokens": 1_440,
        "reported_prompt_tokens": 1_000,
        "engine_cached_tokens": 944,
        "hit_ratio": 0.944,
        "counter_queries_tokens": 0,
        "counter_hits_tokens": 0,
        "counter_ratio": None,
        "predicted_ratio": 0.96,
        "lost_tokens": 0,
        "saved_prefill_s": pytest.approx((464 + 480 + 480) / 8_000),
    }
    assert whole["saved_ttft_s"] == pytest.approx((464 + 480 + 480) / 8_000 / 3, abs=1e-6)
    assert [of(world, "replica", name)["requests"] for name in ("r0", "r1")] == [2, 1]
    assert [of(world, "model", name)["engine_cached_tokens"] for name in ("a", "b")] == [464, 480]
    assert of(world, "replica", "r1")["hit_ratio"] is None
    counts = world.history.rolling.totals("1h")
    errors = [error_ratio(counts, world.history.series.find(Name("replica", name))) for name in ("r0", "r1", "r2")]
    assert errors == [0.016, None, None]


def test_errors_cost_no_tokens_and_only_the_fleets_own_count_as_failed() -> None:
    world = World()
    for status, error in ((503, "upstream_failed"), (500, None), (499, None), (400, None), (200, None)):
        world.history.request_finished(record(decision=at(), status=status, error=error))
    shown = world.window()
    assert (shown["requests"], shown["failed"], shown["prompt_tokens"]) == (5, 2, 500)
    assert shown["errors"] == {"upstream_failed": 1}
    assert shown["reasons"] == {"warm": 5}


def test_a_name_that_nobody_serves_is_no_model_and_one_that_has_no_replica_is_one_that_fails() -> None:
    world = World()
    world.history.request_finished(record(decision=None, model="mistyped", status=404, error="unknown_model"))
    world.history.request_finished(record(decision=at(), model="mistyped", status=404))
    world.history.request_finished(record(decision=None, model="a", status=503, error="no_replica"))
    shown = world.window()
    assert (shown["requests"], shown["failed"], shown["reasons"]) == (3, 1, {"warm": 1})
    assert shown["errors"] == {"unknown_model": 1, "no_replica": 1}
    assert shown["phases"]["overhead"]["count"] == 3
    assert models(world) == {"a"}
    assert of(world, "model", "a")["failed"] == 1
    world.history.request_finished(record(decision=at(), model="a", status=400))
    assert of(world, "model", "a")["requests"] == 2


def test_times_are_counted_by_cache_length_and_phase() -> None:
    world = World()
    for matched, tokens, ttft_s in ((480, 256, 0.1), (480, 257, 0.1), (480, 70_000, 0.1), (0, 300, 3.0)):
        usage = Usage(tokens, None, 20, "stop")
        world.history.request_finished(record(decision=at("r0", matched), usage=usage, ttft_s=ttft_s))
    world.history.request_finished(record(decision=at(), streaming=False))
    world.history.request_finished(record(decision=at(), ttft_s=None, prefill_s=None, decode_s=None))
    shown = world.window()
    assert shown["ttft"]["warm"] == {"count": 3, "p50_s": pytest.approx(0.1, 0.19), "p95_s": pytest.approx(0.1, 0.19)}
    assert shown["ttft"]["cold"]["p50_s"] == pytest.approx(3.0, 0.19)
    lengths = [(row["up_to_tokens"], row["warm"]["count"], row["cold"]["count"]) for row in shown["ttft_by_length"]]
    assert lengths == [(256, 1, 0), (1_024, 1, 1), (4_096, 0, 0), (16_384, 0, 0), (65_536, 0, 0), (None, 1, 0)]
    counts = {phase: row["count"] for phase, row in shown["phases"].items()}
    assert counts == {"overhead": 6, "queue": 6, "retry": 6, "connect": 6, "prefill": 4, "decode": 4}
    assert shown["phases"]["queue"] == {"count": 6, "p50_s": 0, "p95_s": 0}
    assert shown["phases"]["overhead"]["p50_s"] == pytest.approx(0.000_12, rel=0.19)


def test_causes_are_ranked_by_what_they_cost() -> None:
    world = World()
    for lost, cause in ((100, Cause.EVICTED), (400, Cause.STAMPED), (50, Cause.EVICTED), (0, Cause.FIRST_SEEN)):
        world.history.request_finished(record(decision=at("r1"), turn=turn(lost_tokens=lost, cause=cause)))
    world.history.request_finished(record(decision=at(), turn=turn()))
    shown = world.window()
    assert shown["causes"] == [
        {"cause": "stamped", "turns": 1, "tokens": 400, "prefill_s": 0.05},
        {"cause": "evicted", "turns": 2, "tokens": 150, "prefill_s": 0.01875},
        {"cause": "first-seen", "turns": 1, "tokens": 0, "prefill_s": 0.0},
    ]
    assert shown["lost_tokens"] == of(world, "replica", "r1")["lost_tokens"] == 550


def test_returns_are_in_time_or_too_late() -> None:
    world = World()
    for idle_s, cause in ((0.5, None), (1.0, None), (1.5, Cause.SPILLED), (9_000.0, Cause.EVICTED), (None, None)):
        lost = 10 if cause else 0
        world.history.request_finished(record(decision=at(), turn=turn(idle_s=idle_s, cause=cause, lost_tokens=lost)))
    shown = world.window()["returns"]
    assert shown["in_time"] == [2, 1] + [0] * 12
    assert shown["too_late"] == [0] * 13 + [1]
    assert len(shown["bounds_s"]) == 13


def test_every_reason_and_every_cause_has_a_place() -> None:
    world = World()
    for reason in Reason:
        taken = Decision("r0", reason, [], 500, 0, None)
        world.history.request_finished(record(decision=taken))
    for cause in Cause:
        world.history.request_finished(record(decision=at(), turn=turn(lost_tokens=7, cause=cause)))
    shown = world.window()
    assert set(shown["reasons"]) == set(Reason)
    assert {row["cause"] for row in shown["causes"]} == set(Cause)


def test_a_replica_that_leaves_is_forgotten_and_the_totals_stay() -> None:
    world = World()
    for replica in ("r0", "r1", "r1"):
        world.history.request_finished(record(decision=at(replica)))
    world.fleet.remove("r1")
    world.history.forget("r1")
    assert world.history.series.kind(layout.REPLICA) == {"r0": world.history.series.first(Name("replica", "r0"))}
    assert (world.window()["requests"], of(world, "model", "m")["requests"]) == (3, 3)
    world.history.request_finished(record(decision=at("r1")))
    assert (world.window()["requests"], of(world, "replica", "r1")["requests"]) == (4, 0)
    world.fleet.add("r1")
    world.history.request_finished(record(decision=at("r1")))
    assert of(world, "replica", "r1")["requests"] == 1


def test_clients_can_not_make_models_without_end() -> None:
    world = World()
    for number in range(3 * MAX_MODELS):
        world.history.request_finished(record(decision=at(), model=f"made-up-{number}"))
    assert len(models(world)) == MAX_MODELS + 1
    assert of(world, "model", "other")["requests"] == 2 * MAX_MODELS
    assert of(world, "model", "made-up-3")["requests"] == 1
    assert world.window()["requests"] == 3 * MAX_MODELS


def test_a_models_name_is_kept_in_part() -> None:
    world = World()
    for end in "xyx":
        world.history.request_finished(record(decision=at(), model="a" * 10_000 + end))
    assert models(world) == {"a" * MAX_NAME}
    assert of(world, "model", "a" * MAX_NAME)["requests"] == 3


def test_models_make_room_a_day_after_their_last_request() -> None:
    world = World()
    for number in range(MAX_MODELS):
        world.history.request_finished(record(decision=at(), model=f"made-up-{number}"))
    world.clock.now += 50_000
    world.history.request_finished(record(decision=at(), model="made-up-1"))
    world.clock.now += 50_000
    world.history.request_finished(record(decision=at(), model="new"))
    assert models(world) == {"made-up-1", "new"}


def test_what_is_read_does_not_change_what_is_counted() -> None:
    world = World()
    for _ in range(3):
        world.history.request_finished(record(decision=at()))
        assert world.window() == world.window()
    assert world.window()["requests"] == 3


gaps_s, names, letters = st.floats(0, 400), st.sampled_from(["r0", "r1", "gone"]), st.sampled_from("abc")


@given(st.lists(st.tuples(gaps_s, names, letters), max_size=40))
def test_replicas_models_and_steps_sum_up_to_the_fleet(told: list[tuple[float, str, str]]) -> None:
    world = World()
    for gap_s, replica, model in told:
        world.clock.now += gap_s
        world.history.request_finished(record(decision=at(replica), model=model))
    for name in ("5m", "1h", "24h"):
        whole = world.window(name)
        assert whole["requests"] == sum(of(world, "model", model, name)["requests"] for model in "abc")
        first = world.history.series.first(layout.FLEET)
        steps = world.history.rolling.steps(name)
        assert whole["prompt_tokens"] == sum(step.counts().get(first + layout.PROMPT_TOKENS, 0) for step in steps)
        here = [of(world, "replica", replica, name)["requests"] for replica in ("r0", "r1")]
        assert sum(here) <= whole["requests"]
    assert sum(of(world, "replica", replica, "24h")["requests"] for replica in ("r0", "r1")) == sum(
        replica != "gone" for _, replica, _ in told
    )


def test_what_clients_vary_takes_bounded_memory() -> None:
    """A client that sends every request with another model and length, for three simulated days."""
    world, random = World(), Random(1)
    tracemalloc.start()
    try:
        sizes = []
        for _ in range(3):
            for _ in range(800):
                world.clock.now += 108
                usage = Usage(random.randrange(100_000), random.randrange(1_000), 20, "stop")
                account = turn(f"s-{random.random()}", lost_tokens=random.randrange(500))
                told = record(
                    decision=at("r0", random.randrange(1_000)), model=f"{random.random()}", usage=usage, turn=account,
                    ttft_s=random.expovariate(1), total_s=random.expovariate(1),
                )  # fmt: skip
                world.history.request_finished(told)
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[2] < sizes[1] * 1.05
