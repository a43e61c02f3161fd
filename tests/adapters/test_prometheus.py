"""The collector: what it counts, what it shows, and what it forgets."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from router.adapters.prometheus import MAX_MODEL_LABELS, FleetCollector
from router.core.fleet import Fleet
from router.core.types import EngineReport, OutcomeKind, Usage
from tests.adapters.records import decision, record


class Shown:
    """A fleet of one replica, its collector, and the page that Prometheus reads."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.fleet.add("r-1")
        self.collector = FleetCollector(self.fleet, lambda: 100.0)
        self.registry = CollectorRegistry()
        self.registry.register(self.collector)

    def samples(self) -> list[tuple[str, dict[str, str], float]]:
        page = generate_latest(self.registry).decode()
        families = text_string_to_metric_families(page)
        return [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]

    def value(self, name: str, **labels: str) -> float | None:
        found = [value for known, own, value in self.samples() if known == name and labels.items() <= own.items()]
        assert len(found) < 2, found
        return found[0] if found else None


def test_tokens_predicted_and_reported_are_counted_by_replica_and_model() -> None:
    shown = Shown()
    shown.collector.request_finished(record())
    shown.collector.request_finished(record(usage=Usage(100, None, 5, "stop"), decision=decision(matched_tokens=0)))
    labels = {"replica": "r-1", "model": "m"}
    assert shown.value("warmroute_requests_total", status="200", **labels) == 2
    assert shown.value("warmroute_prompt_tokens_total", **labels) == 600
    assert shown.value("warmroute_predicted_cached_tokens_total", **labels) == 480
    assert shown.value("warmroute_engine_cached_tokens_total", **labels) == 464
    assert shown.value("warmroute_decisions_total", replica="r-1", reason="warm") == 2


def test_errors_add_no_tokens() -> None:
    shown = Shown()
    shown.collector.request_finished(record(status=400, usage=Usage()))
    assert shown.value("warmroute_prompt_tokens_total", replica="r-1") == 0
    assert shown.value("warmroute_requests_total", status="400") == 1


def test_times_to_the_first_token_are_told_apart_by_what_was_expected() -> None:
    shown = Shown()
    shown.collector.request_finished(record(ttft_s=0.25))
    shown.collector.request_finished(record(ttft_s=3.5, decision=decision(matched_tokens=0)))
    shown.collector.request_finished(record(ttft_s=9.0, streaming=False))
    assert shown.value("warmroute_ttft_seconds_count", cache="warm") == 1
    assert shown.value("warmroute_ttft_seconds_sum", cache="cold") == 3.5
    assert shown.value("warmroute_ttft_seconds_bucket", cache="warm", le="0.3") == 1
    assert shown.value("warmroute_ttft_seconds_bucket", cache="warm", le="0.2") == 0
    assert shown.value("warmroute_ttft_seconds_bucket", cache="cold", le="+Inf") == 1


def test_a_value_on_a_border_is_in_its_bucket() -> None:
    shown = Shown()
    shown.collector.request_finished(record(ttft_s=0.5))
    assert shown.value("warmroute_ttft_seconds_bucket", cache="warm", le="0.5") == 1


def test_unknown_engine_figures_are_absent_and_known_zeros_are_there() -> None:
    shown = Shown()
    assert shown.value("warmroute_engine_running_requests", replica="r-1") is None
    shown.fleet.observe_engine("r-1", EngineReport(running=0))
    assert shown.value("warmroute_engine_running_requests", replica="r-1") == 0
    assert shown.value("warmroute_engine_waiting_requests", replica="r-1") is None
    shown.fleet.lost_sight_of("r-1")
    assert shown.value("warmroute_engine_running_requests", replica="r-1") is None


def test_a_removed_replica_leaves_every_label_set() -> None:
    shown = Shown()
    shown.fleet.add("r-2")
    for name in ("r-1", "r-2"):
        shown.collector.request_finished(record(decision=decision(name)))
        shown.collector.attempt_failed(name, OutcomeKind.RESET)
    shown.fleet.remove("r-1")
    shown.collector.forget("r-1")
    assert {labels["replica"] for _, labels, _ in shown.samples() if "replica" in labels} == {"r-2"}


def test_models_have_labels_up_to_a_limit() -> None:
    shown = Shown()
    for number in range(MAX_MODEL_LABELS + 20):
        shown.collector.request_finished(record(model=f"m-{number}"))
    shown.collector.request_finished(record(model="m-0"))
    names = {labels["model"] for name, labels, _ in shown.samples() if name == "warmroute_requests_total"}
    assert len(names) == MAX_MODEL_LABELS + 1
    assert shown.value("warmroute_requests_total", model="other") == 20
    assert shown.value("warmroute_requests_total", model="m-0") == 2


def test_counters_never_go_back() -> None:
    shown = Shown()
    before: dict[str, float] = {}
    for number in range(20):
        shown.collector.request_finished(record(status=200 if number % 3 else 503, model=f"m-{number % 4}"))
        now = {f"{name}{labels}": value for name, labels, value in shown.samples() if name.endswith("_total")}
        assert all(now[key] >= value for key, value in before.items())
        before = now
