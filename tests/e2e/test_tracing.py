"""Traces through the whole router: client, request, decision, attempts, engine."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from router.adapters.tracing.export import BATCH_SPANS
from router.app.process.reload import take
from router.app.settings.model import Settings
from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from tests.e2e.test_queue import Full
from tests.rig.client import chat, request
from tests.rig.collector import CLIENT, ERROR, INTERNAL, SERVER, UNSET, Collector, Span
from tests.rig.running import Router
from tests.rig.stage import Stage

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = [("traceparent", f"00-{TRACE}-{PARENT}-01"), ("tracestate", "congo=t61")]
UNSAMPLED = [("traceparent", f"00-{TRACE}-{PARENT}-00"), ("tracestate", "congo=t61")]


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with Collector() as collector:
        yield collector


async def traced(stage: Stage, collector: Collector, *replicas: Any, **settings: Any) -> Router:
    return await stage.router(*replicas, otlp_endpoint=collector.url, **settings)


def by_name(spans: list[Span]) -> dict[str, Span]:
    found = {span.name: span for span in spans}
    assert len(found) == len(spans), "two spans have one name"
    return found


def named(spans: list[Span], name: str) -> list[Span]:
    return sorted((span for span in spans if span.name == name), key=lambda span: span.begun_ns)


def sent_on(replica: SimReplica, number: int = -1) -> tuple[str, str, str]:
    """Trace id, parent id and flags that a replica was sent; that they came once is checked here."""
    (value,) = [value for name, value in replica.requests[number].headers if name.lower() == b"traceparent"]
    found = re.fullmatch(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})", value.decode())
    assert found
    return found[1], found[2], found[3]


async def test_client_request_attempt_and_engine_are_one_chain(stage: Stage, collector: Collector) -> None:
    replica = await stage.replica()
    router = await traced(stage, collector, replica)
    assert (await stage.ask(router, chat(headers=SAMPLED))).status == 200
    spans = by_name(await collector.all_of(router))
    whole, decide, attempt = spans["chat sim-model"], spans["warmroute.decide"], spans["warmroute.attempt"]
    assert len(spans) == 3
    assert {span.trace_id for span in spans.values()} == {TRACE}
    assert {span.trace_state for span in spans.values()} == {"congo=t61"}
    assert (whole.parent_id, decide.parent_id, attempt.parent_id) == (PARENT, whole.span_id, whole.span_id)
    assert (whole.kind, decide.kind, attempt.kind) == (SERVER, INTERNAL, CLIENT)
    assert sent_on(replica) == (TRACE, attempt.span_id, "01")
    assert replica.requests[-1].header(b"tracestate") == b"congo=t61"
    assert whole.begun_ns <= decide.begun_ns <= decide.ended_ns <= attempt.begun_ns < attempt.ended_ns <= whole.ended_ns


async def test_the_spans_say_what_became_of_the_request(stage: Stage, collector: Collector) -> None:
    replica = await stage.replica()
    router = await traced(stage, collector, replica)
    text = "Once upon a time, " * 100
    await stage.ask(router, chat(text, headers=[("x-session-id", "my-session")]))
    answer = await stage.ask(router, chat(text, headers=[("x-session-id", "my-session"), ("x-request-id", "id-7")]))
    spans = await collector.all_of(router)
    whole, decide = named(spans, "chat sim-model")[1], named(spans, "warmroute.decide")[1]
    attempt, usage = named(spans, "warmroute.attempt")[1], answer.json()["usage"]
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "sim-model",
        "gen_ai.usage.input_tokens": usage["prompt_tokens"],
        "gen_ai.usage.output_tokens": 4,
        "gen_ai.usage.cache_read.input_tokens": usage["prompt_tokens_details"]["cached_tokens"],
        "gen_ai.response.finish_reasons": ["length"],
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "url.path": "/v1/chat/completions",
        "url.scheme": "http",
        "warmroute.request_id": "id-7",
        "warmroute.reason": answer.reason,
        "warmroute.replica": answer.replica,
        "warmroute.matched_tokens": answer.matched_tokens,
        "warmroute.outcome": "completed",
        "warmroute.attempts": 1,
    }
    assert expected.items() <= whole.attributes.items()
    assert whole.status == attempt.status == UNSET
    assert answer.matched_tokens > 0
    assert decide.attributes == {
        "warmroute.replica": answer.replica,
        "warmroute.reason": answer.reason,
        "warmroute.prompt_tokens": decide["warmroute.prompt_tokens"],
        "warmroute.matched_tokens": answer.matched_tokens,
        "warmroute.candidates": 1,
        "warmroute.home": answer.replica,
        "warmroute.source": "local",
    }
    assert attempt["warmroute.replica"] == answer.replica
    assert (attempt["http.request.method"], attempt["http.response.status_code"]) == ("POST", 200)


async def test_no_text_key_session_or_address_is_in_them(stage: Stage, collector: Collector) -> None:
    replica = await stage.replica()
    router = await traced(stage, collector, replica, engine_api_key="engine-secret")
    secret = [("x-session-id", "session-secret"), ("authorization", "Bearer client-secret")]
    await stage.ask(router, chat("prompt-secret " * 100, headers=secret, user="user-secret"))
    await stage.ask(router, request("/v1/models/x?query-secret=1", headers=secret))
    assert len(await collector.all_of(router)) == 6
    everything = b"".join(collector.bodies)
    assert b"secret" not in everything
    assert str(replica.port).encode() not in everything
    assert b"127.0.0.1" not in everything


async def test_a_retry_is_a_second_attempt_of_the_same_request(stage: Stage, collector: Collector) -> None:
    bad, good = await stage.replicas(2)
    bad.faults.set(Fault(FaultKind.RESET_BEFORE_FIRST_BYTE))
    router = await traced(stage, collector, bad, good)
    answer = await stage.ask(router, chat(headers=SAMPLED))
    assert (answer.status, answer.replica) == (200, router.id_of(good))
    spans = await collector.all_of(router)
    (whole,) = named(spans, "chat sim-model")
    first, second = named(spans, "warmroute.attempt")
    assert first.parent_id == second.parent_id == whole.span_id
    assert sent_on(bad)[1] == first.span_id
    assert sent_on(good)[1] == second.span_id
    assert (first.status, first["error.type"], first["warmroute.outcome"]) == (ERROR, "reset", "reset")
    assert (second.status, second["warmroute.reason"], second["http.request.resend_count"]) == (UNSET, "failover", 1)
    assert (whole.status, whole["warmroute.attempts"]) == (UNSET, 2)
    (decide,) = named(spans, "warmroute.decide")
    assert decide["warmroute.replica"] == first["warmroute.replica"] == router.id_of(bad)
    assert first.ended_ns <= second.begun_ns


async def test_a_kept_connection_that_was_closed_is_the_same_attempt(stage: Stage, collector: Collector) -> None:
    replica = await stage.replica()
    router = await traced(stage, collector, replica)
    client = await stage.client(router)
    await client.ask(chat())
    replica.faults.set(Fault(FaultKind.CLOSE_REUSED, count=1))
    assert (await client.ask(chat(headers=SAMPLED))).status == 200
    spans = [span for span in await collector.all_of(router) if span.trace_id == TRACE]
    (attempt,) = named(spans, "warmroute.attempt")
    assert attempt.status == UNSET
    assert attempt["warmroute.outcome"] == "completed"
    assert [arrival.connection for arrival in replica.requests] == [1, 2]
    assert sent_on(replica)[1] == attempt.span_id


async def test_a_stream_tells_when_its_first_content_came(stage: Stage, collector: Collector) -> None:
    router = await traced(stage, collector, await stage.replica())
    await stage.ask(router, chat(stream=True, max_tokens=20))
    spans = by_name(await collector.all_of(router))
    whole, attempt = spans["chat sim-model"], spans["warmroute.attempt"]
    record = router.records.finished[-1]
    assert whole["gen_ai.request.stream"] is True
    assert whole["gen_ai.response.time_to_first_chunk"] == record.ttft_s
    assert whole["warmroute.prefill_s"] == record.prefill_s
    assert whole["warmroute.decode_s"] == record.decode_s
    ((name, at_ns),) = attempt.events
    assert name == "warmroute.first_content"
    assert attempt.begun_ns < at_ns < attempt.ended_ns
    assert record.ttft_s is not None
    assert abs(at_ns - whole.begun_ns - record.ttft_s * 1e9) < 1_000, "both are made of the same moments"


async def test_waiting_in_the_queue_is_a_span(stage: Stage, collector: Collector) -> None:
    full = await Full.of(stage, otlp_endpoint=collector.url)
    (client,) = await full.wait_with(chat("one", headers=SAMPLED))
    full.go()
    await client.answer()
    spans = by_name([span for span in await collector.all_of(full.router) if span.trace_id == TRACE])
    whole, decide = spans["chat sim-model"], spans["warmroute.decide"]
    queue, attempt = spans["warmroute.queue"], spans["warmroute.attempt"]
    assert queue.parent_id == whole.span_id
    assert whole.begun_ns <= decide.ended_ns <= queue.begun_ns < queue.ended_ns == attempt.begun_ns


async def test_a_client_that_leaves_the_queue_has_a_span_of_its_waiting(stage: Stage, collector: Collector) -> None:
    full = await Full.of(stage, otlp_endpoint=collector.url)
    (client,) = await full.wait_with(chat("one", headers=SAMPLED))
    client.leave()
    await full.router.until(lambda: not full.held)
    full.go()
    spans = by_name([span for span in await collector.all_of(full.router) if span.trace_id == TRACE])
    assert set(spans) == {"chat", "warmroute.decide", "warmroute.queue"}
    assert spans["chat"].status == UNSET
    assert "http.response.status_code" not in spans["chat"].attributes


@pytest.mark.parametrize(("status", "request_status"), [(500, ERROR), (400, UNSET), (422, UNSET)])
async def test_an_engines_error_counts_as_the_conventions_say(
    stage: Stage, collector: Collector, status: int, request_status: int
) -> None:
    replica = await stage.replica()
    replica.faults.set(Fault(FaultKind.STATUS, status=status))
    router = await traced(stage, collector, replica)
    assert (await stage.ask(router, chat())).status == status
    spans = by_name(await collector.all_of(router))
    whole, attempt = spans["chat sim-model"], spans["warmroute.attempt"]
    assert (whole.status, attempt.status) == (request_status, ERROR)
    assert whole["http.response.status_code"] == attempt["http.response.status_code"] == status
    assert attempt["error.type"] == str(status)


async def test_an_answer_that_died_in_its_middle_is_an_error_of_both(stage: Stage, collector: Collector) -> None:
    replica = await stage.replica()
    replica.faults.set(Fault(FaultKind.DIE_AFTER_CHUNKS, after_chunks=3))
    router = await traced(stage, collector, replica)
    client = await stage.client(router)
    client.send(chat(stream=True, max_tokens=50, ignore_eos=True))
    await client.remainder()
    spans = by_name(await collector.all_of(router))
    whole, attempt = spans["chat sim-model"], spans["warmroute.attempt"]
    assert (whole.status, whole["error.type"], whole["http.response.status_code"]) == (ERROR, "upstream_died", 200)
    assert (attempt.status, attempt["error.type"]) == (ERROR, "died")


async def test_what_the_router_itself_refuses_is_a_span_alone(stage: Stage, collector: Collector) -> None:
    router = await traced(stage, collector, await stage.replica(), api_keys="k" * 16)
    assert (await stage.ask(router, chat(headers=SAMPLED))).status == 401
    (whole,) = await collector.all_of(router)
    assert (whole.name, whole.kind, whole.status, whole.parent_id) == ("POST", SERVER, UNSET, PARENT)
    assert whole["http.response.status_code"] == 401


async def test_no_replica_is_an_error_of_the_servers(stage: Stage, collector: Collector) -> None:
    router = await traced(stage, collector)
    assert (await stage.ask(router, chat())).status == 503
    (whole,) = await collector.all_of(router)
    assert (whole.name, whole.status, whole["error.type"]) == ("chat", ERROR, router.records.finished[-1].error)


async def test_an_unsampled_parent_makes_no_spans_and_goes_on_as_it_came(stage: Stage, collector: Collector) -> None:
    replica = await stage.replica()
    router = await traced(stage, collector, replica)
    await stage.ask(router, chat(headers=UNSAMPLED))
    assert sent_on(replica) == (TRACE, PARENT, "00")
    assert replica.requests[-1].header(b"tracestate") == b"congo=t61"
    assert await collector.all_of(router) == []
    assert collector.exports == 0


async def test_the_ratio_is_for_traces_that_begin_here_and_a_reload_changes_it(
    stage: Stage, collector: Collector
) -> None:
    replica = await stage.replica()
    router = await traced(stage, collector, replica, trace_ratio=0.0)
    await stage.ask(router, chat())
    trace_id, _, flags = sent_on(replica)
    assert (flags, trace_id != "0" * 32) == ("00", True), "the engine is told not to sample it either"
    await stage.ask(router, chat(headers=SAMPLED))
    take(router.house, router.house.settings.model_copy(update={"trace_ratio": 1.0}))
    await stage.ask(router, chat())
    begun_here = sent_on(replica)
    assert begun_here[2] == "01"
    spans = await collector.all_of(router)
    assert {span.trace_id for span in spans} == {TRACE, begun_here[0]}
    assert len(spans) == 6


async def test_a_malformed_parent_is_replaced(stage: Stage, collector: Collector) -> None:
    replica = await stage.replica()
    router = await traced(stage, collector, replica)
    bad = [("traceparent", f"00-{TRACE}-{PARENT}"), ("tracestate", "congo=t61")]
    await stage.ask(router, chat(headers=bad))
    trace_id, parent_id, flags = sent_on(replica)
    assert (trace_id != TRACE, flags) == (True, "01")
    assert replica.requests[-1].header(b"tracestate") is None
    spans = by_name(await collector.all_of(router))
    assert spans["chat sim-model"].parent_id == ""
    assert spans["warmroute.attempt"].span_id == parent_id


async def test_it_says_who_it_is_and_sends_where_it_is_told(
    stage: Stage, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.name=edge")
    replica = await stage.replica()
    for path in ("/v1/traces", "/"):
        router = await stage.router(replica, otlp_endpoint=collector.url + path)
        await stage.ask(router, chat())
        await collector.all_of(router)
    assert set(collector.targets) == {"POST /v1/traces HTTP/1.1"}
    assert {fields["x-tenant"] for fields in collector.headers} == {"blue"}
    ids = {span.resource["service.instance.id"] for span in collector.spans}
    assert len(ids) == 2, "each process is one of its own"
    assert collector.spans[0].resource["service.name"] == "edge"
    assert collector.spans[0].resource["deployment.environment.name"] == "test"


async def test_spans_are_sent_while_the_router_runs_and_counted(stage: Stage, collector: Collector) -> None:
    router = await traced(stage, collector, await stage.replica())
    client = await stage.client(router)
    for _ in range(BATCH_SPANS // 3 + 1):
        await client.ask(chat())
    await collector.came.wait()
    assert len(collector.spans) >= BATCH_SPANS
    await collector.all_of(router)
    text = (await (await router.admin()).get("/metrics")).text
    total = 3 * (BATCH_SPANS // 3 + 1)
    assert f'warmroute_trace_spans_total{{result="exported"}} {total}.0' in text
    assert 'warmroute_trace_spans_total{result="dropped"} 0.0' in text


async def test_when_off_the_clients_trace_passes_as_it_came(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    await stage.ask(router, chat(headers=[*SAMPLED, ("tracestate", "second=1")]))
    headers = [(name, value) for name, value in replica.requests[-1].headers if name.startswith(b"trace")]
    assert headers == [
        (b"traceparent", f"00-{TRACE}-{PARENT}-01".encode()),
        (b"tracestate", b"congo=t61"),
        (b"tracestate", b"second=1"),
    ]
    await stage.ask(router, chat())
    assert replica.requests[-1].header(b"traceparent") is None
    assert router.house.tracer is None


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)


def test_when_off_nothing_of_it_is_imported() -> None:
    """redis-py imports parts of the SDK by itself where they are installed."""
    code = (
        "import asyncio, sys\n"
        "from router.app.settings.model import Settings\n"
        "from router.app.wiring import build\n"
        "async def main(): await build(Settings(replica=('http://a:1',))).close()\n"
        "asyncio.run(main())\n"
        "found = ('router.adapters.tracing', 'opentelemetry.exporter', 'opentelemetry.sdk.trace')\n"
        "print([name for name in found if name in sys.modules])\n"
    )
    assert run(code).stdout.strip() == "[]"


def test_without_the_extra_the_setting_is_refused_and_says_how_to_get_it() -> None:
    code = (
        "import sys\n"
        "sys.modules['opentelemetry'] = None\n"
        "from router.app.cli import main\n"
        "main(['check-config', '--otlp-endpoint', 'http://127.0.0.1:4318'])\n"
    )
    outcome = run(code)
    assert outcome.returncode == 2
    assert "pip install 'warmroute[otel]'" in outcome.stderr
    assert outcome.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("collector:4318", "http://host:4318"),
        ("grpc://collector:4317", "http://host:4318"),
        ("http://", "http://host:4318"),
        ("http://user:pass@collector:4318", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("http://collector:4318/?key=1", "OTEL_EXPORTER_OTLP_HEADERS"),
    ],
)
def test_what_can_be_no_collector_is_refused(url: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)) as refused:
        Settings(otlp_endpoint=url)
    assert "pass" not in str(refused.value).partition("[type=")[0] or "user:pass" not in url
