"""A replica that says nothing is told from a busy one by what others do."""

from router.core.fleet import Fleet
from router.core.health import Cause, State
from router.core.replica import Replica
from router.core.ticket import Ticket
from router.core.types import Outcome, OutcomeKind, RoutingRequest
from tests.core.worlds import chat, fleet_of

TEXT = ("user", "a question " * 50)
"""Some 140 tokens, which are prefilled within 20 ms."""


def asked(fleet: Fleet, replica_id: str, now: float, streaming: bool = True) -> Ticket:
    request: RoutingRequest = chat(TEXT)._replace(streaming=streaming)
    return fleet.route_to(replica_id, request, now)


def answered(fleet: Fleet, ticket: Ticket, now: float) -> None:
    fleet.first_byte(ticket, now)
    fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200), now)


def judged(fleet: Fleet, now: float) -> list[str]:
    return [replica.replica_id for replica in fleet.judge_silence(now)]


def with_one_wedged() -> tuple[Fleet, Replica]:
    fleet = fleet_of(2)
    for name in ("r0", "r1"):
        answered(fleet, asked(fleet, name, 0.0), 0.1)
    asked(fleet, "r0", 1.0)
    return fleet, fleet["r0"]


def test_silence_while_others_answer_makes_suspect_and_then_ejects() -> None:
    fleet, wedged = with_one_wedged()
    answered(fleet, asked(fleet, "r1", 2.0), 2.1)
    assert (judged(fleet, 5.9), wedged.health.state) == ([], State.READY)
    assert (judged(fleet, 6.5), wedged.health.state) == ([], State.SUSPECT)
    assert wedged.priced_queue_s(6.5) > wedged.queue_s(6.5) + 1.0, "its sessions weigh what they lose by moving"
    assert (judged(fleet, 12.0), wedged.health.state) == (["r0"], State.EJECTED)
    assert wedged.health.cause is Cause.SILENCE
    assert judged(fleet, 12.5) == [], "told once"


def test_a_fleet_in_which_nobody_answers_is_not_judged() -> None:
    fleet, wedged = with_one_wedged()
    assert judged(fleet, 1000.0) == []
    assert wedged.health.state is State.READY


def test_an_answer_clears_a_suspect() -> None:
    fleet, wedged = with_one_wedged()
    answered(fleet, asked(fleet, "r1", 2.0), 2.1)
    judged(fleet, 6.5)
    answered(fleet, asked(fleet, "r0", 6.6), 6.7)
    assert wedged.health.state is State.READY


def test_a_long_prefill_is_not_silence() -> None:
    fleet = fleet_of(2)
    answered(fleet, asked(fleet, "r1", 0.0), 0.1)
    fleet.route_to("r0", chat(("user", "page " * 64_000)), 1.0)  # 80,000 tokens: 10 s
    answered(fleet, asked(fleet, "r1", 2.0), 2.1)
    assert judged(fleet, 20.0) == []
    assert fleet["r0"].health.state is State.JOINING


def test_bytes_of_other_streams_are_a_sign_of_life() -> None:
    fleet, wedged = with_one_wedged()
    answered(fleet, asked(fleet, "r1", 2.0), 2.1)
    wedged.heard_s = 11.0
    assert judged(fleet, 12.0) == []


def test_an_answer_in_one_piece_has_as_long_as_the_longest_of_late() -> None:
    fleet = fleet_of(2)
    answered(fleet, asked(fleet, "r1", 0.0, streaming=False), 20.0)
    asked(fleet, "r0", 30.0, streaming=False)
    answered(fleet, asked(fleet, "r1", 31.0), 31.1)
    assert (judged(fleet, 90.0), fleet["r0"].health.state) == ([], State.JOINING), "3 x 20 s and 5 s"
    judged(fleet, 96.0)
    assert judged(fleet, 165.0) == ["r0"]


def test_a_trial_that_is_given_up_counts_and_the_next_one_comes_later() -> None:
    fleet, wedged = with_one_wedged()
    answered(fleet, asked(fleet, "r1", 2.0), 2.1)
    assert judged(fleet, 12.0) == ["r0"]
    gaps = []
    now = wedged.health.retry_at_s
    for _ in range(6):
        trial = asked(fleet, "r0", now)
        fleet.settle(trial, Outcome(OutcomeKind.SILENT), now + 0.4)
        gaps.append(round(wedged.health.retry_at_s - now - 0.4, 3))
        now = wedged.health.retry_at_s
    assert gaps == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_requests_that_are_given_up_together_count_once() -> None:
    fleet, wedged = with_one_wedged()
    tickets = [asked(fleet, "r0", 1.5) for _ in range(20)]
    answered(fleet, asked(fleet, "r1", 2.0), 2.1)
    assert judged(fleet, 12.0) == ["r0"]
    for ticket in tickets:
        fleet.settle(ticket, Outcome(OutcomeKind.SILENT), 12.1)
    assert (wedged.health.failures, wedged.health.retry_at_s) == (1, 12.5)


def test_a_stream_tells_of_silence_behind_an_answer_in_one_piece() -> None:
    """An answer in one piece may be silent for minutes; streams that wait behind it may not."""
    fleet = fleet_of(2)
    for name in ("r0", "r1"):
        answered(fleet, asked(fleet, name, 0.0), 0.1)
    asked(fleet, "r0", 1.0, streaming=False)
    asked(fleet, "r0", 1.5)
    answered(fleet, asked(fleet, "r1", 2.0), 2.1)
    assert (judged(fleet, 7.0), fleet["r0"].health.state) == ([], State.SUSPECT)
    assert judged(fleet, 12.5) == ["r0"]


def test_one_that_drains_is_judged_only_when_its_requests_are_to_be_moved() -> None:
    fleet, wedged = with_one_wedged()
    wedged.health.drain(1.1)
    answered(fleet, asked(fleet, "r1", 2.0), 2.1)
    causes = [(judged(fleet, now), wedged.health.cause)[1] for now in (7.0, 12.0)]
    assert causes == [None, Cause.SILENCE]
    assert wedged.health.state is State.DRAINING
