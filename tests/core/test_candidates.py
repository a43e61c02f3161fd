"""Who may be asked: models, draining replicas, last resorts, and requests that must wait or go to a named replica."""

from collections import Counter

from router.core.fleet import Fleet
from router.core.policy import round_robin
from router.core.ticket import Ticket
from router.core.types import Decision, Outcome, OutcomeKind, Reason, ReplicaId, RoutingRequest
from tests.core.test_fleet import turns
from tests.core.worlds import answered, chat, fleet_of


def serve(fleet: Fleet, ticket: Ticket) -> ReplicaId:
    fleet.first_byte(ticket, 0.1)
    fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200), 0.2)
    return ticket.decision.replica


def test_two_models_do_not_take_turns_with_each_other() -> None:
    fleet = fleet_of(2)
    fleet.policy = round_robin
    went = [fleet.route(chat(*turns(1), model=model), 0.0).decision.replica for model in "abababab"]
    assert went[0::2] == ["r0", "r1", "r0", "r1"]
    assert sorted(went[1::2]) == ["r0", "r0", "r1", "r1"]


def test_a_draining_home_is_left_with_its_reason_and_kept_as_a_last_resort() -> None:
    fleet = fleet_of(2)
    home = answered(fleet, chat(*turns(1)), 0.0).decision.replica
    fleet[home].health.drain(1.0)
    moved = fleet.explain(chat(*turns(2)), 1.0)
    assert (moved.replica != home, moved.reason, moved.home) == (True, Reason.DRAINED, home)
    other = moved.replica
    fleet[other].health.failed(OutcomeKind.REFUSED, 1.0)
    last = fleet.explain(chat(*turns(2)), 1.0)
    assert (last.replica, last.reason) == (home, Reason.LAST_RESORT), "it works, and nobody else does"
    fleet[home].health.failed(OutcomeKind.REFUSED, 1.0)
    assert {score.replica for score in fleet.explain(chat(*turns(2)), 1.0).scores} == {home, other}


def test_a_draining_replica_still_serves_what_it_alone_stores() -> None:
    fleet = fleet_of(2)
    fleet.index.homes.put(7, "r1")
    fleet["r1"].health.drain(0.0)
    request = RoutingRequest("", "unknown", None, 0, stored=7)
    assert fleet.explain(request, 1.0).replica == "r1"
    fleet["r1"].health.remove(2.0)
    assert fleet.explain(request, 3.0).replica == "r0"


def test_a_busy_replica_is_waited_for_and_nothing_is_counted() -> None:
    fleet = fleet_of(1)
    ticket = fleet.route(chat(*turns(20)), 0.0)
    assert fleet["r0"].queue_s(0.0) > 0.01
    held = fleet.route_within(chat(*turns(1, "other")), 0.0, depth_s=0.01)
    assert isinstance(held, Decision)
    assert (held.replica, fleet["r0"].ledger.streams) == ("r0", 1)
    fleet.first_byte(ticket, 0.5)
    assert isinstance(fleet.route_within(chat(*turns(1, "other")), 0.5, depth_s=0.01), Ticket)


def test_a_request_can_be_sent_to_a_named_replica() -> None:
    fleet = fleet_of(3)
    assert serve(fleet, fleet.route_to("r2", chat(*turns(1)), 0.0)) == "r2"
    assert fleet.explain(chat(*turns(2)), 1.0).replica == "r2", "what was computed there is known"


def test_weights_share_the_work_until_speeds_are_known() -> None:
    fleet = fleet_of(2)
    fleet.weigh("r1", 3.0)
    texts = [("user", f"{number}: a question of its own " * 100) for number in range(200)]
    went = Counter(fleet.route(chat(text), 0.0).decision.replica for text in texts)
    assert 2.0 < went["r1"] / went["r0"] < 12.0


def test_a_fast_engine_that_streams_to_nobody_is_not_waited_for() -> None:
    """Embeddings: no first byte tells of their prefill. At the assumed 8,000 tokens/s two of these fill a second."""
    fleet = fleet_of(1)
    texts = [chat(("user", f"{number} passage " * 2_000))._replace(streaming=False) for number in range(24)]
    for number, text in enumerate(texts[:4]):
        ticket = fleet.route(text, float(number))
        fleet.first_byte(ticket, number + 0.02)
        fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200), number + 0.02)
    assert all(isinstance(fleet.route_within(text, 10.0, depth_s=1.0), Ticket) for text in texts[4:])
