"""Requests and tokens: what is counted, and what is forgotten."""

from __future__ import annotations

from router.adapters.metrics.requests import GONE, MAX_MODEL_LABELS
from router.core.costs import PrefillCost
from router.core.types import OutcomeKind, Usage
from tests.adapters.metrics.shown import Shown
from tests.adapters.records import decision, record


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


def test_the_share_that_is_cached_is_of_the_prompts_that_were_reported() -> None:
    shown = Shown()
    shown.collector.request_finished(record(usage=Usage(500, 464, 20, "stop")))
    shown.collector.request_finished(record(usage=Usage(100, 0, 5, "stop")))
    shown.collector.request_finished(record(usage=Usage(900, None, 5, "stop")))
    shown.collector.request_finished(record(usage=Usage(700, 600, 5, "stop"), status=400))
    labels = {"replica": "r-1", "model": "m"}
    assert shown.value("warmroute_reported_prompt_tokens_total", **labels) == 600
    assert shown.value("warmroute_engine_cached_tokens_total", **labels) == 464
    assert shown.value("warmroute_prompt_tokens_total", **labels) == 1_500


def test_a_belief_that_is_off_counts_above_and_below() -> None:
    shown = Shown()
    for cached in (464, 480, 500, None):
        shown.collector.request_finished(record(usage=Usage(500, cached), model=f"m-{cached}"))
    assert shown.values("warmroute_mirror_error_tokens_total", "replica") == {"r-1": 16 + 0 + 20}


def test_what_is_saved_is_at_the_rate_of_its_time_and_as_reported_where_it_is() -> None:
    shown = Shown()
    shown.fleet["r-1"].prefill.assume(PrefillCost(1_000.0))
    shown.collector.request_finished(record(usage=Usage(500, 400)))
    shown.fleet["r-1"].prefill.assume(PrefillCost(100.0))
    shown.collector.request_finished(record(usage=Usage(), decision=decision(matched_tokens=30)))
    saved = shown.value("warmroute_saved_prefill_seconds_total", replica="r-1")
    assert saved is not None
    assert abs(saved - 0.7) < 1e-9


def test_the_last_answer_of_a_replica_that_left_has_its_tokens_counted() -> None:
    shown = Shown()
    shown.collector.request_finished(record(decision=decision("r-left")))
    shown.collector.attempt_failed("r-left", OutcomeKind.DIED)
    assert shown.value("warmroute_reported_prompt_tokens_total", replica=GONE) == 500
    assert shown.value("warmroute_mirror_error_tokens_total", replica=GONE) == 16
    assert shown.value("warmroute_saved_prefill_seconds_total", replica=GONE) == 0, "its rate is not known any more"
    assert shown.value("warmroute_attempt_failures_total", replica=GONE) == 1


def test_what_the_router_itself_answered_has_no_tokens_and_no_times() -> None:
    shown = Shown()
    shown.collector.request_finished(record(decision=None, outcome=None, status=404, error="model_not_found"))
    assert {name for name, labels, _ in shown.samples() if labels.get("replica") == ""} == {"warmroute_requests_total"}
