"""What the router counts of real requests, against the engines' own counters and against itself."""

from __future__ import annotations

import asyncio
from bisect import bisect_left

import pytest

from router import __version__
from router.adapters.metrics.times import PHASES
from router.core.history.layout import LENGTHS_TOKENS
from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from router.sim.types import EngineConfig
from tests.app.test_admin import samples, total
from tests.e2e.test_queue import Full
from tests.rig.client import chat, request
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.talks import ChatTalk, fleet_of

Found = dict[str, list[tuple[dict[str, str], float]]]

STORY = "a long story, " * 200


async def turns(stage: Stage, router: Router, talk: ChatTalk, count: int) -> None:
    """Send so many turns of a streamed chat, one after the other."""
    for _ in range(count):
        answer = await stage.ask(router, request(talk.path, {"model": "sim-model"} | talk.ask()))
        assert answer.status == 200
        talk.take(answer)


async def calm(stage: Stage, chats: int, count: int) -> tuple[Router, list[SimReplica], Found]:
    """Hold chats that nothing disturbs, on two replicas."""
    router, replicas = await fleet_of(stage, 2)
    for number in range(chats):
        await turns(stage, router, ChatTalk(number + 1, stream=True), count)
    await router.idle()
    return router, replicas, await samples(router)


async def test_reported_tokens_are_the_engines_own(stage: Stage) -> None:
    router, replicas, found = await calm(stage, chats=4, count=3)
    for replica in replicas:
        name, stats = router.id_of(replica), replica.engine.stats
        assert stats.prefix_hits_tokens > 0
        assert total(found["warmroute_reported_prompt_tokens_total"], replica=name) == stats.prefix_queries_tokens
        assert total(found["warmroute_engine_cached_tokens_total"], replica=name) == stats.prefix_hits_tokens


async def test_the_belief_is_right_for_a_calm_chat(stage: Stage) -> None:
    router, replicas, found = await calm(stage, chats=1, count=5)
    predicted = total(found["warmroute_predicted_cached_tokens_total"])
    assert predicted == sum(replica.engine.stats.prefix_hits_tokens for replica in replicas) > 0
    assert total(found["warmroute_mirror_error_tokens_total"]) == 0
    assert [labels for labels, _ in found["warmroute_mirror_error_tokens_total"]] == [
        {"replica": router.records.finished[0].decision.replica}  # type: ignore[union-attr]
    ]


async def test_the_belief_is_wrong_by_what_an_engine_forgot(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    talk = ChatTalk(1, stream=True)
    await turns(stage, router, talk, 2)
    replica.restart_cold()
    await turns(stage, router, talk, 1)
    last = router.records.finished[-1]
    assert last.decision is not None
    assert last.decision.matched_tokens > 500
    assert last.usage.cached_tokens == 0
    found = await samples(router)
    assert total(found["warmroute_mirror_error_tokens_total"]) == last.decision.matched_tokens


async def test_saved_prefill_is_what_was_cached_over_the_learnt_rate(stage: Stage) -> None:
    router, replicas, found = await calm(stage, chats=2, count=3)
    for replica in replicas:
        rate = router.books(replica).prefill
        assert not rate.measured, "a rate that is learnt on the way has several values"
        saved = total(found["warmroute_saved_prefill_seconds_total"], replica=router.id_of(replica))
        assert saved == pytest.approx(replica.engine.stats.prefix_hits_tokens / rate.tokens_per_s)
        assert saved > 0


async def test_engines_that_do_not_report_have_no_report(stage: Stage) -> None:
    replica = await stage.replica(prompt_tokens_details=False)
    router = await stage.router(replica)
    for _ in range(2):
        await stage.ask(router, chat(STORY))
    found = await samples(router)
    assert total(found["warmroute_prompt_tokens_total"]) > 0
    assert total(found["warmroute_reported_prompt_tokens_total"]) == 0
    assert total(found["warmroute_mirror_error_tokens_total"]) == 0
    assert total(found["warmroute_saved_prefill_seconds_total"]) > 0, "as expected, since nobody says otherwise"


# Turns


async def test_calm_chats_are_first_seen_once_come_back_in_time_and_lose_nothing(stage: Stage) -> None:
    _, _, found = await calm(stage, chats=3, count=4)
    assert total(found["warmroute_first_turns_total"]) == 3
    assert total(found["warmroute_returns_seconds_count"], returned="in-time") == 9
    assert total(found["warmroute_returns_seconds_count"], returned="too-late") == 0
    causes = {labels["cause"] for labels, value in found["warmroute_missed_turns_total"] if value}
    assert causes <= {"spread"}, "the system prompt was sent to both replicas"


async def test_a_history_that_the_client_changed_is_lost_to_that(stage: Stage) -> None:
    router, _ = await fleet_of(stage, 2)
    talk = ChatTalk(1, stream=True)
    await turns(stage, router, talk, 3)
    talk.history[0]["content"] = "Another system prompt, which says something else. " * 20
    await turns(stage, router, talk, 1)
    await router.idle()
    found, last = await samples(router), router.records.finished[-1]
    assert last.turn is not None
    assert last.turn.lost_tokens > 500
    missed = {labels["cause"]: value for labels, value in found["warmroute_missed_tokens_total"] if value}
    assert missed == {"system-changed": last.turn.lost_tokens}
    assert total(found["warmroute_missed_turns_total"]) == 1


async def test_what_was_evicted_comes_back_too_late(stage: Stage) -> None:
    router, _ = await fleet_of(stage, 1, engine=EngineConfig(kv_tokens=4_096))
    talk = ChatTalk(1, stream=True)
    await turns(stage, router, talk, 1)
    for number in range(12):
        await stage.ask(router, chat(f"{number} {STORY}"))
    await turns(stage, router, talk, 1)
    await router.idle()
    found = await samples(router)
    assert total(found["warmroute_missed_turns_total"], cause="evicted") == 1
    assert total(found["warmroute_returns_seconds_count"], returned="too-late") == 1
    assert total(found["warmroute_returns_seconds_count"], returned="in-time") == 0


# Phases


def phase_sums(found: Found, **labels: str) -> dict[str, float]:
    return {phase: total(found["warmroute_phase_seconds_sum"], phase=phase, **labels) for phase in PHASES}


def check_sums(found: Found, count: int, **labels: str) -> dict[str, float]:
    """Check that so many streams have phases that add up to their total."""
    for phase in PHASES:
        assert total(found["warmroute_phase_seconds_count"], phase=phase, **labels) == count
    sums = phase_sums(found, **labels)
    assert sum(sums.values()) - sums["total"] == pytest.approx(sums["total"])
    return sums


async def test_the_phases_of_streams_add_up_to_their_total(stage: Stage) -> None:
    _, _, found = await calm(stage, chats=3, count=3)
    sums = check_sums(found, 9)
    assert (sums["queue"], sums["retry"]) == (0, 0)
    assert min(sums["overhead"], sums["connect"], sums["prefill"], sums["decode"]) > 0
    warm = check_sums(found, int(total(found["warmroute_ttft_seconds_count"], cache="warm")), cache="warm")
    assert warm["total"] < sums["total"]
    assert {labels["priority"] for labels, _ in found["warmroute_phase_seconds_count"]} == {"interactive"}


async def test_a_retry_is_a_phase(stage: Stage) -> None:
    bad, good = await stage.replicas(2)
    bad.faults.set(Fault(FaultKind.RESET_BEFORE_FIRST_BYTE))
    router = await stage.router(bad, good)
    while not router.records.failed:
        assert (await stage.ask(router, chat(STORY, stream=True))).status == 200
    await router.idle()
    sums = check_sums(await samples(router), len(router.records.finished))
    assert sums["retry"] == pytest.approx(sum(record.retried_s for record in router.records.finished))
    assert sums["retry"] > 0


async def test_the_queue_is_a_phase_by_priority(stage: Stage) -> None:
    full = await Full.of(stage)
    clients = await full.wait_with(chat("one", stream=True), chat("two", stream=True, priority=10))
    full.go()
    await asyncio.gather(*(client.answer() for client in clients))
    await full.router.idle()
    found = await samples(full.router)
    waited = {record.batch: record.queued_s for record in full.router.records.finished if record.queued_s}
    assert check_sums(found, 1, priority="batch")["queue"] == pytest.approx(waited[True])
    assert check_sums(found, 2, priority="interactive")["queue"] == pytest.approx(waited[False])


async def test_answers_in_one_piece_are_in_the_total_alone(stage: Stage) -> None:
    router = await stage.router(await stage.replica())
    await stage.ask(router, chat(STORY))
    found = await samples(router)
    counts = {phase: total(found["warmroute_phase_seconds_count"], phase=phase) for phase in PHASES}
    assert counts == dict.fromkeys(PHASES, 1) | {"prefill": 0, "decode": 0}
    assert phase_sums(found)["total"] == pytest.approx(router.records.finished[0].total_s)


async def test_ttft_is_counted_by_the_prompts_length(stage: Stage) -> None:
    router = await stage.router(await stage.replica())
    usage = {"include_usage": True}
    for text in ("short", STORY, STORY, "word " * 5_000):
        await stage.ask(router, chat(text, stream=True, stream_options=usage))
    found = await samples(router)
    counts = {
        (labels["prompt_tokens"], labels["cache"]): value
        for labels, value in found["warmroute_ttft_by_prompt_length_seconds_count"]
    }
    lengths = [record.usage.prompt_tokens for record in router.records.finished]
    assert [bisect_left(LENGTHS_TOKENS, length or 0) for length in lengths] == [0, 1, 1, 3]
    assert counts == {("256", "cold"): 1, ("1024", "cold"): 1, ("1024", "warm"): 1, ("16384", "cold"): 1}
    assert sum(counts.values()) == total(found["warmroute_ttft_seconds_count"])


# The mirror, the build


async def test_a_full_mirror_says_how_full_and_how_old_its_oldest_is(stage: Stage) -> None:
    router, (replica,) = await fleet_of(stage, 1, engine=EngineConfig(kv_tokens=4_096))
    found = await samples(router)
    assert "warmroute_mirror_fill_ratio" not in found
    await stage.ask(router, chat(STORY))
    found = await samples(router)
    assert 0 < total(found["warmroute_mirror_fill_ratio"], replica=router.id_of(replica)) < 0.5
    assert "warmroute_eviction_age_seconds" not in found
    for number in range(12):
        await stage.ask(router, chat(f"{number} {STORY}"))
    await router.idle()
    found = await samples(router)
    mirror = router.books(replica).mirror
    assert total(found["warmroute_mirror_fill_ratio"]) == mirror.fill_ratio
    age_s, now_s = total(found["warmroute_eviction_age_seconds"]), mirror.eviction_age_s(router.house.plane.clock())
    assert now_s is not None
    assert 0 < age_s <= now_s


async def test_the_build_is_named(stage: Stage) -> None:
    found = await samples(await stage.router())
    assert found["warmroute_build_info"] == [({"version": __version__}, 1.0)]


async def test_tasks_are_counted_while_they_last(stage: Stage) -> None:
    router = await stage.router(await stage.replica())
    before = total((await samples(router))["warmroute_tasks"])
    waiting = asyncio.Event()
    tasks = [asyncio.create_task(waiting.wait()) for _ in range(50)]
    during = total((await samples(router))["warmroute_tasks"])
    waiting.set()
    await asyncio.gather(*tasks)
    after = total((await samples(router))["warmroute_tasks"])

    assert before > 0
    assert during - before >= 45  # a connection's own task may have ended in between
    assert during - after >= 45
