"""The collector of traces refuses, hangs or answers with errors: no request notices, and one line says so."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, TraceFlags

from router.adapters.tracing.export import LINE_SPANS, SpanExport
from tests.rig.client import chat
from tests.rig.collector import Collector
from tests.rig.running import Router
from tests.rig.stage import Stage


def export_of(router: Router) -> SpanExport:
    assert router.house.tracer is not None
    return router.house.tracer.export


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name != "asyncio"]


def counts(router: Router) -> dict[str, float]:
    (family,) = export_of(router).collect()
    return {sample.labels["result"]: sample.value for sample in family.samples}


@pytest.fixture(autouse=True)
def _short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK tries a batch again for 10 s."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")


async def test_one_that_refuses_is_said_once_and_costs_no_request(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1.5")  # long enough for a second attempt, which tells the cause
    caplog.set_level(logging.INFO)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        router = await stage.router(await stage.replica(), otlp_endpoint=f"http://127.0.0.1:{taken.getsockname()[1]}")
        client = await stage.client(router)
        for _ in range(60):
            assert (await client.ask(chat())).status == 200
        await router.until(lambda: counts(router)["failed"] >= 64 * 2)
    assert counts(router)["exported"] == 0
    (line,) = lines(caplog)
    assert "takes no spans" in line
    assert "Connection refused" in line


async def test_one_that_answers_with_errors_is_said_once_with_what_it_says(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with Collector() as collector:
        collector.status = 404
        router = await stage.router(await stage.replica(), otlp_endpoint=collector.url)
        client = await stage.client(router)
        for _ in range(60):
            assert (await client.ask(chat())).status == 200
        await router.until(lambda: counts(router)["failed"] >= 64 * 2)
        (line,) = lines(caplog)
        assert "404" in line
        collector.status = 200
        for _ in range(30):
            await client.ask(chat())
        await router.until(lambda: counts(router)["exported"] > 0)
        assert len(lines(caplog)) == 2
        assert "takes spans again" in lines(caplog)[1]
        assert await collector.all_of(router)


async def test_one_that_never_answers_holds_up_neither_requests_nor_the_stop(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    async with Collector() as collector:
        collector.status = None
        router = await stage.router(await stage.replica(), otlp_endpoint=collector.url)
        client = await stage.client(router)
        for _ in range(30):
            assert (await client.ask(chat())).status == 200
        await collector.came.wait()
        await router.idle()
        async with asyncio.timeout(5.0):  # the SDK's own shutdown would take 30 s
            await export_of(router).close()
        assert "the last 90 spans could not be sent" in lines(caplog)[-1]


async def test_what_waits_is_bounded_and_whole_requests_are_dropped(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    async with Collector() as collector:
        collector.status = None
        router = await stage.router(await stage.replica(), otlp_endpoint=collector.url)
        export, context = export_of(router), SpanContext(1, 2, False, TraceFlags(1))
        spans = [ReadableSpan("s", context, start_time=1, end_time=2)] * 3
        for _ in range(LINE_SPANS // 3 + 100):
            export.add(spans)
        assert LINE_SPANS - 3 < export.waiting_spans <= LINE_SPANS
        assert counts(router)["dropped"] % 3 == 0
        assert counts(router)["dropped"] > 0
        assert (await stage.ask(router, chat())).status == 200
    assert "Queue full" not in caplog.text
