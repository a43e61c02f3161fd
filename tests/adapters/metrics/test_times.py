"""Where the time went: phases that add up, kinds that are told apart, prompts by their length."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.adapters.metrics.times import PHASES
from router.core.types import Usage
from tests.adapters.metrics.shown import Shown
from tests.adapters.records import decision, record

NAME = "warmroute_phase_seconds"


def by_phase(shown: Shown, suffix: str) -> dict[str, float]:
    """The samples of the one kind of answers that there were, by phase."""
    found = [(own["phase"], value) for name, own, value in shown.samples() if name == f"{NAME}_{suffix}"]
    assert len(dict(found)) == len(found)
    return dict(found)


TIME = st.floats(0, 500)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(TIME, TIME, TIME, TIME, TIME, TIME), min_size=1, max_size=20))
def test_the_phases_of_streams_add_up_to_their_total(times: list[tuple[float, ...]]) -> None:
    shown = Shown()
    names = ("overhead_s", "queued_s", "retried_s", "connect_s", "prefill_s", "decode_s")
    for phases in times:
        parts = dict(zip(names, phases, strict=True))
        shown.collector.request_finished(record(total_s=sum(phases), **parts))
    counts, found = by_phase(shown, "count"), by_phase(shown, "sum")
    total = found.pop("total")
    assert len(found) == len(names)
    assert sum(found.values()) == pytest.approx(total)
    assert counts == dict.fromkeys(PHASES, len(times)), "a phase that took no time counts as well"


def test_each_phase_is_its_own() -> None:
    shown = Shown()
    shown.collector.request_finished(
        record(overhead_s=1, queued_s=2, retried_s=4, connect_s=8, prefill_s=16, decode_s=32, total_s=63)
    )
    assert by_phase(shown, "sum") == {
        "overhead": 1, "queue": 2, "retry": 4, "connect": 8, "prefill": 16, "decode": 32, "total": 63,
    }  # fmt: skip


def test_an_answer_in_one_piece_has_no_prefill_of_its_own() -> None:
    shown = Shown()
    shown.collector.request_finished(record(streaming=False))
    assert by_phase(shown, "count") == dict.fromkeys(PHASES, 1) | {"prefill": 0, "decode": 0}


def test_what_was_not_answered_has_no_phases() -> None:
    shown = Shown()
    shown.collector.request_finished(record(decision=None, outcome=None, status=503, error="no_replica"))
    shown.collector.request_finished(record(status=400))
    shown.collector.request_finished(record(prefill_s=None, decode_s=None, ttft_s=None))
    assert by_phase(shown, "sum") == {}


def test_kinds_are_told_apart() -> None:
    shown = Shown()
    kinds = [(cache, priority) for cache in ("warm", "cold") for priority in ("interactive", "batch")]
    for number, (cache, priority) in enumerate(kinds, 1):
        found = decision(matched_tokens=16 if cache == "warm" else 0)
        shown.collector.request_finished(record(decision=found, batch=priority == "batch", total_s=number))
    for number, (cache, priority) in enumerate(kinds, 1):
        assert shown.value(f"{NAME}_sum", phase="total", cache=cache, priority=priority) == number


@pytest.mark.parametrize(
    ("tokens", "label"),
    [
        (1, "256"), (256, "256"), (257, "1024"), (1_024, "1024"), (4_096, "4096"), (4_097, "16384"), (65_536, "65536"),
        (65_537, "more"),
    ],
)  # fmt: skip
def test_a_prompt_counts_under_the_first_length_that_it_does_not_exceed(tokens: int, label: str) -> None:
    shown = Shown()
    shown.collector.request_finished(record(usage=Usage(tokens, 0)))
    counts = {
        (own["prompt_tokens"], own["cache"]): value
        for name, own, value in shown.samples()
        if name == "warmroute_ttft_by_prompt_length_seconds_count"
    }
    assert counts == {(label, "warm"): 1}


def test_lengths_are_estimated_where_they_are_not_reported_and_counted_as_ttft_is() -> None:
    shown = Shown()
    cold = decision(matched_tokens=0)
    shown.collector.request_finished(record(usage=Usage(), decision=cold))
    shown.collector.request_finished(record(streaming=False))
    shown.collector.request_finished(record(ttft_s=None))
    name = "warmroute_ttft_by_prompt_length_seconds"
    assert shown.value(f"{name}_sum", prompt_tokens="1024", cache="cold") == 0.25
    assert shown.value(f"{name}_count") == shown.value("warmroute_ttft_seconds_count", cache="cold") == 1


def test_buckets_never_shrink() -> None:
    shown = Shown()
    for number in range(40):
        shown.collector.request_finished(record(total_s=2.0**number / 1e4))
    buckets = [value for name, own, value in shown.samples() if name == f"{NAME}_bucket" and own["phase"] == "total"]
    assert all(lower <= upper for lower, upper in pairwise(buckets))
    assert (buckets[0], buckets[-1]) == (1, 40)
