"""From which answers a replica's costs are learnt, and how often."""

from __future__ import annotations

import pytest

from router.core.fleet import Fleet
from router.core.speeds import LEARN_PAUSE_S
from router.core.types import Outcome, OutcomeKind, Usage
from tests.core.worlds import chat


def answer(fleet: Fleet, number: int, at_s: float, prefill_s: float = 1.0) -> tuple[float, ...]:
    """One streamed request that ends at `at_s`; return the prefill's costs as they are believed then."""
    request = chat(("user", f"{number} " * 4_000))._replace(streaming=True)
    ticket = fleet.route(request, at_s - prefill_s)
    fleet.first_byte(ticket, at_s)
    fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200, Usage(4_000, 0, 1, "stop")), at_s)
    return fleet["r0"].prefill.coefficients


@pytest.fixture
def fleet() -> Fleet:
    """One replica whose prefills were timed four times."""
    fleet = Fleet()
    fleet.add("r0")
    for number in range(4):
        answer(fleet, number, 10.0 * number)
    assert fleet["r0"].prefill.measured
    return fleet


def test_answers_in_quick_succession_teach_once(fleet: Fleet) -> None:
    learnt = answer(fleet, 5, 100.0, 1.1)
    assert answer(fleet, 6, 100.0 + LEARN_PAUSE_S / 2, 1.3) == learnt
    assert answer(fleet, 7, 100.0 + 2 * LEARN_PAUSE_S, 1.3) != learnt


def test_until_costs_are_known_every_answer_teaches() -> None:
    fleet = Fleet()
    fleet.add("r0")
    for number in range(4):
        answer(fleet, number, 10.0 + number / 1_000)
    assert fleet["r0"].prefill.measured


def test_replicas_are_timed_each_for_itself(fleet: Fleet) -> None:
    answer(fleet, 5, 100.0)
    fleet.add("r1")
    request = chat(("user", "other " * 4_000))._replace(streaming=True)
    before = fleet["r1"].timed_s
    ticket = fleet.route_to("r1", request, 99.5)
    fleet.first_byte(ticket, 100.0)
    fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200, Usage(4_000, 0, 1, "stop")), 100.0)
    assert fleet["r1"].prefill._fit.samples == 1  # not held up by r0's answer of the same moment
    assert fleet["r1"].timed_s == before  # nothing is known of it yet
