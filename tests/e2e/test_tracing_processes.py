"""Traces of `warmroute serve` as a process and as several: the last spans are sent at the end, and within its time."""

from __future__ import annotations

import signal

from tests.redis_server import running_redis
from tests.rig.client import chat
from tests.rig.collector import Collector
from tests.rig.served import serving
from tests.rig.stage import Stage


async def test_what_waits_is_sent_when_it_is_stopped(stage: Stage) -> None:
    replica = await stage.replica()
    async with Collector() as collector:
        async with serving("--replica", replica.url, "--otlp-endpoint", collector.url) as served:
            assert (await stage.ask(served, chat())).status == 200
            served.send(signal.SIGTERM)
            code, log = await served.ended()
        assert code == 0
        assert "tracing" not in log
        assert {span.name for span in collector.spans} == {"chat sim-model", "warmroute.decide", "warmroute.attempt"}


async def test_a_collector_that_hangs_does_not_hold_up_the_end(stage: Stage) -> None:
    replica = await stage.replica()
    async with Collector() as collector:
        collector.status = None
        async with serving("--replica", replica.url, "--otlp-endpoint", collector.url) as served:
            await stage.ask(served, chat())
            await collector.came.wait()
            await stage.ask(served, chat())
            served.send(signal.SIGTERM)
            code, log = await served.ended()
        assert code == 0, "what must be killed after END_S ends with 1"
        assert log.count("tracing") == 1
        assert "could not be sent" in log


async def test_each_worker_sends_its_own(stage: Stage) -> None:
    replica = await stage.replica()
    with running_redis() as url:
        async with Collector() as collector:
            arguments = ("--redis", url, "--replica", replica.url, "--otlp-endpoint", collector.url)
            async with serving(*arguments, workers=2) as served:
                for admin_port in served.pids:
                    with served.only(admin_port):
                        assert (await stage.ask(served, chat())).status == 200
                served.send(signal.SIGTERM)
                assert (await served.ended())[0] == 0
            pids = {span.resource["process.pid"] for span in collector.spans}
            assert pids == set(served.pids.values())
