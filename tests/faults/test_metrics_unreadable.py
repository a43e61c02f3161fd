"""/metrics is garbage, missing, cut off, slow or of another release: "unknown", never 0, and routing goes on."""

from __future__ import annotations

import pytest

from router.core.types import EngineReport
from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from tests.rig.client import chat, request
from tests.rig.running import Router
from tests.rig.stage import Stage


async def scraped(replica: SimReplica, more: int = 2) -> None:
    """Wait for further readings of this replica's metrics."""
    target = sum(arrival.path == "/metrics" for arrival in replica.requests) + more
    await replica.wait_for(
        lambda: sum(arrival.path == "/metrics" and arrival.ended for arrival in replica.requests) >= target, 5.0
    )


async def gauges(router: Router) -> str:
    text = (await (await router.admin()).get("/metrics")).text
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


@pytest.mark.parametrize("kind", [FaultKind.METRICS_GARBAGE, FaultKind.METRICS_MISSING])
async def test_unreadable_metrics_are_unknown_and_the_replica_serves(stage: Stage, kind: FaultKind) -> None:
    replica = await stage.replica()
    replica.faults.set(Fault(kind))
    router = await stage.router(replica, watched=True, scrape_interval_s=0.1)
    await scraped(replica)
    assert router.books(replica).report == EngineReport()
    assert "warmroute_engine_running_requests{" not in await gauges(router)
    assert router.books(replica).health.up
    assert (await stage.ask(router, chat())).status == 200
    assert (await stage.ask(router, request("/readyz"))).status == 200


@pytest.mark.parametrize("kind", [FaultKind.METRICS_GARBAGE, FaultKind.METRICS_MISSING])
async def test_what_was_read_before_is_not_taken_for_the_present(stage: Stage, kind: FaultKind) -> None:
    replica = await stage.replica(time_scale=1.0)
    router = await stage.router(replica, watched=True, scrape_interval_s=0.1)
    client = await stage.client(router)
    client.send(chat(stream=True, max_tokens=5_000, ignore_eos=True))
    await router.until(lambda: router.books(replica).report.running == 1)
    replica.faults.set(Fault(kind))
    await router.until(lambda: router.books(replica).report.running is None)
    assert router.books(replica).report.waiting is None
    assert router.books(replica).report.kv_usage_ratio is None


@pytest.mark.parametrize("kind", [FaultKind.METRICS_GARBAGE, FaultKind.METRICS_MISSING])
async def test_a_restart_is_noticed_across_readings_that_failed(stage: Stage, kind: FaultKind) -> None:
    replica = await stage.replica()
    router = await stage.router(replica, watched=True, scrape_interval_s=0.1)
    await stage.ask(router, chat("a long story, " * 200))
    await router.until(lambda: bool(router.books(replica).report.prefix_queries_tokens))
    replica.faults.set(Fault(kind))
    await scraped(replica)
    assert len(router.books(replica).mirror) > 0, "an unreadable page is no restart"
    replica.restart_cold()
    replica.faults.clear()
    await router.until(lambda: len(router.books(replica).mirror) == 0, "the restart went unnoticed")


async def test_of_metrics_that_break_off_what_is_there_is_read(stage: Stage) -> None:
    replica = await stage.replica()
    replica.faults.set(Fault(FaultKind.METRICS_PARTIAL))
    router = await stage.router(replica, watched=True, scrape_interval_s=0.1)
    await scraped(replica)
    report = router.books(replica).report
    assert report.running == 0
    assert report.kv_usage_ratio is None
    assert (await stage.ask(router, chat())).status == 200


async def test_slow_metrics_slow_no_request_and_no_other_replicas_readings(stage: Stage) -> None:
    slow, quick = await stage.replicas(2)
    slow.faults.set(Fault(FaultKind.SLOW_METRICS, delay_s=30.0))
    router = await stage.router(slow, quick, watched=True, scrape_interval_s=0.1)
    await slow.wait_for(lambda: any(arrival.path == "/metrics" for arrival in slow.requests), 5.0)
    await scraped(quick, 3)
    client = await stage.client(router)
    answers = [await client.ask(chat()) for _ in range(6)]
    assert {answer.status for answer in answers} == {200}
    assert {answer.replica for answer in answers} == {router.id_of(slow), router.id_of(quick)}
    readings = [arrival for arrival in slow.requests if arrival.path == "/metrics"]
    assert len(readings) == 1, "the next reading waits for the last"
    assert not readings[0].ended


async def test_names_of_older_releases_are_read(stage: Stage) -> None:
    replica = await stage.replica(old_metric_names=True, time_scale=1.0)
    router = await stage.router(replica, watched=True, scrape_interval_s=0.1)
    client = await stage.client(router)
    client.send(chat("some words " * 50, stream=True, max_tokens=5_000, ignore_eos=True))
    await router.until(lambda: router.books(replica).report.running == 1)
    await router.until(lambda: (router.books(replica).report.kv_usage_ratio or 0.0) > 0.0)
    assert (router.books(replica).report.prefix_queries_tokens or 0) > 50


async def test_one_replica_without_metrics_takes_its_share(stage: Stage) -> None:
    """Unknown is not idle: it draws no more than its part, and is not avoided either."""
    unknown, known = await stage.replicas(2)
    unknown.faults.set(Fault(FaultKind.METRICS_MISSING))
    router = await stage.router(unknown, known, watched=True, scrape_interval_s=0.1)
    await scraped(known)
    client = await stage.client(router)
    answers = [await client.ask(chat(f"{number} some words " * 60)) for number in range(20)]
    share = sum(answer.replica == router.id_of(unknown) for answer in answers)
    assert 6 <= share <= 14


async def test_the_routers_own_readings_carry_the_engines_key(stage: Stage) -> None:
    replica = await stage.replica(api_key="fleet-key")
    router = await stage.router(replica, watched=True, engine_api_key="fleet-key")
    await router.until(lambda: bool(router.books(replica).models))
    for path in ("/metrics", "/v1/models"):
        asked = next(arrival for arrival in replica.requests if arrival.path == path)
        assert [value for name, value in asked.headers if name.lower() == b"authorization"] == [b"Bearer fleet-key"]
