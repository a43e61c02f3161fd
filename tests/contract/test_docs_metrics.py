"""docs/reference/metrics.md says what /metrics says, both ways; and the log line's fields."""

from __future__ import annotations

import io
import json
import re

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from router.adapters.kv_events.follower import Follower
from router.adapters.kv_events.metrics import KvEventsCollector
from router.adapters.metrics.collector import RouterCollector
from router.adapters.metrics.times import PHASES
from router.adapters.metrics.turns import LOSING
from router.adapters.queue_metrics import QueueCollector
from router.adapters.recording.counts import RecordingCounts
from router.adapters.redis_store.address import parse
from router.adapters.redis_store.metrics import StoreCollector
from router.adapters.redis_store.options import Options
from router.adapters.redis_store.store import RedisStore
from router.adapters.request_log import FLUSH_S, ChangeField, Line, RequestLog
from router.adapters.tokenizer.agreement import Agreement
from router.adapters.tokenizer.counts import TokenizerCounts
from router.adapters.tokenizer.pieces import PieceCache
from router.adapters.touch_metrics import TouchCounts
from router.adapters.tracing.export import SpanExport
from router.adapters.warm_up_metrics import WarmUpCounts
from router.app.admin.limits import LimitsCollector
from router.app.admin.tasks import TasksCollector
from router.app.process.gate import Gate
from router.app.process.reloads import ReloadCollector, Reloads
from router.core.fleet import Fleet
from router.core.misses.types import Cause, TurnAccount
from router.core.queue import Queue
from router.core.touching.profit import Profit
from router.core.types import Decision, EngineReport, Outcome, OutcomeKind, Prompt, Reason, RoutingRequest, Usage
from router.ports import RequestRecord
from router.proxy.plane import Limits, Plane
from tests.contract.pages import DOCS, Block, all_blocks, code, codes, pages, prose, section, table, tables

PAGE = DOCS / "reference" / "metrics.md"
SECTIONS = (
    "Requests", "Where the time went", "Tokens", "Turns", "The queue", "The router's own limits",
    "The router's books of each replica",
    "What the engines say", "Warm-up", "Touches", "Sharing with other routers", "Stop and reload", "Traces", "Build",
    "Recording", "Exact tokens", "KV cache events",
)  # fmt: skip


def finished() -> RequestRecord:
    """A request that every counter counts, and an error beside it."""
    decision = Decision("r", Reason.WARM, [], prompt_tokens=100, matched_tokens=64, home="r")
    return RequestRecord(
        request_id="i", method="POST", path="/v1/completions", model="m", shape="completions", streaming=True,
        batch=False, client="c", status=200, outcome=OutcomeKind.DIED, decision=decision, source="local", attempts=1,
        usage=Usage(100, 64, 10, "stop"),
        overhead_s=0.001, queued_s=0.5, retried_s=0.0, connect_s=0.0, prefill_s=0.1, decode_s=0.399, ttft_s=0.601,
        total_s=1.0, ended_s=10.0, turn=TurnAccount("s-1", 2, 30.0, 96, 64, 32, Cause.EVICTED, None),
        error="upstream_died",
    )  # fmt: skip


def fill(fleet: Fleet) -> None:
    """One finished request that takes all of replica r's cache, so that something would have to be evicted."""
    prompt = Prompt(hashes=[1], ends_bytes=[512], answers_at=[], bytes_per_token=None)
    ticket = fleet.route_to("r", RoutingRequest("m", "chat", prompt, 512), now=0.0)
    fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200, Usage(128, 0, 1, "stop")), now=0.0)
    fleet["r"].mirror.capacity_bytes = 512


def collected() -> dict[str, tuple[str, set[str]]]:
    """Name -> (type, labels) of everything that a router with traffic exposes."""
    fleet = Fleet()
    fleet.add("r")
    fleet.observe_engine("r", EngineReport(1, 1, 0.5, 1000, 16, 10.0, 5.0, 0.0, 1.0, False, 5.0, 2.0))
    fill(fleet)
    collector = RouterCollector(fleet, lambda: 0.0)
    collector.request_finished(finished())
    collector.attempt_failed("r", OutcomeKind.REFUSED)
    registry = CollectorRegistry()
    registry.register(collector)
    queue = QueueCollector(Queue())
    queue.request_finished(finished())
    registry.register(queue)
    warm_up = WarmUpCounts()
    warm_up.count("r", "done", 100)
    registry.register(warm_up)
    touches = TouchCounts(Profit(), lambda: 0, lambda: 0.0)
    touches.count("r", "done")
    registry.register(touches)
    registry.register(RecordingCounts())
    registry.register(KvEventsCollector({"r": Follower(fleet["r"], None, lambda: 0.0)}))
    registry.register(TokenizerCounts({"m": Agreement()}, {"": PieceCache()}))
    registry.register(SpanExport("http://127.0.0.1:1"))
    registry.register(LimitsCollector(Plane(fleet, Limits()), lambda: True))
    registry.register(TasksCollector(list))
    registry.register(ReloadCollector(Reloads(), Gate(Plane(fleet, Limits()))))
    registry.register(StoreCollector(RedisStore(fleet, Options(parse("redis://h")), "w", lambda: 0.0), fleet))
    found = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        assert family.samples, f"{family.name} has no sample here, so its labels can't be seen"
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[family.name + ("_total" if family.type == "counter" else "")] = (family.type, labels)
    return found


def documented() -> dict[str, tuple[str, set[str]]]:
    rows = [row for heading in SECTIONS for row in table(PAGE, heading)]
    found = {code(name): (kind, set(codes(labels))) for name, kind, labels, _ in rows}
    assert len(found) == len(rows), "a metric stands in the page twice"
    return found


def test_every_metric_is_documented_with_its_type_and_labels() -> None:
    assert documented() == collected()


def test_the_page_has_no_metric_outside_these_tables() -> None:
    assert len(tables(prose(PAGE))) == len(SECTIONS) + 3  # the log line's, phases, causes


def test_every_metric_named_anywhere_in_the_docs_exists() -> None:
    families = collected()
    suffixes = ("", "_bucket", "_count", "_sum")
    for page in pages():
        for name in re.findall(r"(?<!:)\bwarmroute_[a-z_]+[a-z]\b", page.read_text()):
            assert any(name.removesuffix(suffix) in families for suffix in suffixes), f"{page.name}: {name}"


QUERIES = [block for block in all_blocks() if block.language == "promql"]


@pytest.mark.parametrize("block", QUERIES, ids=str)
def test_queries_ask_for_labels_that_their_metrics_have(block: Block) -> None:
    known = {"job", "instance"}
    for name, matchers in re.findall(r"\b(warmroute_\w+|process_\w+)(?:\{([^}]*)\})?", block.text):
        base = re.sub(r"_(bucket|count|sum)$", "", name)
        kind, labels = collected().get(base, ("gauge", set()))
        assert (base != name) == (kind == "histogram"), f"{name} is no sample"
        own = labels | ({"le"} if name.endswith("_bucket") else set())
        assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)) <= own | {"job", "instance"}
        known |= own
    for listed in re.findall(r"\bby \(([^)]*)\)", block.text):
        assert set(re.split(r",\s*", listed)) <= known, listed
    assert (
        block.text.count("histogram_quantile") == block.text.count("_bucket[") == len(re.findall(r"\ble\b", block.text))
    )


def test_each_meaning_is_a_sentence() -> None:
    for heading in SECTIONS:
        for name, *_, meaning in table(PAGE, heading):
            assert meaning.endswith("."), name


def test_every_field_of_the_log_line_is_documented_and_every_one_documented_exists() -> None:
    rows = table(PAGE, "The log line")
    assert [code(name) for name, _ in rows] == list(Line.__struct_fields__)
    (change,) = [meaning for name, meaning in rows if name == "`change`"]
    assert codes(change) == list(ChangeField.__struct_fields__)


async def test_the_event_is_named_as_it_is_written() -> None:
    stream = io.BytesIO()
    log = RequestLog(stream)
    log.request_finished(finished())
    log.flush()
    assert json.loads(stream.getvalue())["event"] in codes(table(PAGE, "The log line")[0][1])


def test_every_cause_and_every_phase_is_documented() -> None:
    assert [code(name) for name, _ in table(PAGE, "Turns", 1)] == [cause.value for cause in LOSING]
    assert [code(name) for name, _ in table(PAGE, "Where the time went", 1)] == list(PHASES)


async def test_the_failed_attempts_line_is_quoted_as_it_is_written() -> None:
    stream = io.BytesIO()
    log = RequestLog(stream)
    log.attempt_failed("r-...", OutcomeKind.REFUSED)
    log.flush()
    assert f"`{stream.getvalue().decode().strip()}`" in section(PAGE, "The log line")
    assert f"up to {FLUSH_S:g} s" in section(PAGE, "The log line")
