"""What other routers say, in exact small numbers."""

from __future__ import annotations

import pytest

from router.core.fleet import Fleet
from router.core.news import Bulletin, Homed, News, Opened, Settled, opened, settled
from router.core.peers import SILENT_S, Peers
from router.core.replica import IDLE, Load
from router.core.ticket import Ticket
from router.core.types import EngineReport, Outcome, OutcomeKind, Prompt, Reason, RoutingRequest, Usage
from tests.core.worlds import BLOCK, chat, fleet_of, prompt

RATE = 8_000.0
"""Tokens per second that an unmeasured replica is believed to prefill."""


def said(*news: News, loads: dict[str, Load] | None = None, oldest_open: int = 0, whole: bool = False) -> Bulletin:
    return Bulletin(oldest_open, whole, list((loads or {}).items()), list(news))


GOOD_BYE = Bulletin(0, True, [], [], leaving=True)


def world(count: int = 3) -> tuple[Fleet, Peers]:
    fleet = fleet_of(count)
    return fleet, Peers(fleet)


def request(name: str = "a", session: str | None = None) -> RoutingRequest:
    return chat(("user", f"{name} " * 1_000), session=session)


def sent(number: int, replica: str, asked: Prompt | None = None, tokens: int = 100) -> Opened:
    """What another router would say of it."""
    if asked is None:
        return Opened(number, replica, tokens)
    there = fleet_of(1)
    ticket = there.route(RoutingRequest("m", "chat", asked, 1_000), 0.0)
    told = opened(ticket)
    return Opened(number, replica, tokens, told.hashes, told.ends_bytes, told.links)


def ended(number: int, *, computed: bool = True, answer_bytes: int = 0, overestimated: bool = False) -> Settled:
    return Settled(number, computed, overestimated, answer_bytes, 4.0)


# Loads


def test_loads_of_all_peers_are_summed() -> None:
    fleet, peers = world()
    peers.hear("A", said(loads={"r0": Load(1_000, 2, 3), "r1": Load(10, 1, 1)}), 0.0)
    peers.hear("B", said(loads={"r0": Load(500, 1, 4)}), 0.0)
    assert [replica.peer_load for replica in fleet] == [Load(1_500, 3, 7), Load(10, 1, 1), IDLE]
    assert (fleet["r0"].streams, fleet["r0"].load) == (7, IDLE)


def test_a_load_replaces_the_one_before_and_an_idle_one_ends_it() -> None:
    fleet, peers = world()
    peers.hear("A", said(loads={"r0": Load(1_000, 2, 3), "r1": Load(7, 1, 1)}), 0.0)
    peers.hear("A", said(loads={"r0": Load(400, 1, 2)}), 0.1)
    assert [replica.peer_load for replica in fleet] == [Load(400, 1, 2), Load(7, 1, 1), IDLE]
    peers.hear("A", said(loads={"r0": IDLE}), 0.2)
    assert [replica.peer_load for replica in fleet] == [IDLE, Load(7, 1, 1), IDLE]


def test_a_whole_bulletin_ends_the_loads_that_it_does_not_name() -> None:
    fleet, peers = world()
    peers.hear("A", said(loads={"r0": Load(1_000, 2, 3), "r1": Load(7, 1, 1)}), 0.0)
    peers.hear("B", said(loads={"r0": Load(1, 1, 1)}), 0.0)
    peers.hear("A", said(loads={"r1": Load(9, 1, 1)}, whole=True), 0.1)
    assert [replica.peer_load for replica in fleet] == [Load(1, 1, 1), Load(9, 1, 1), IDLE]


def test_a_silent_router_is_forgotten_and_its_load_with_it() -> None:
    fleet, peers = world()
    peers.hear("A", said(loads={"r0": Load(1_000, 2, 3)}), 0.0)
    peers.hear("B", said(loads={"r0": Load(1, 1, 1)}), 2.0)
    assert peers.expire(SILENT_S) == []
    assert peers.expire(SILENT_S + 0.1) == ["A"]
    assert fleet["r0"].peer_load == Load(1, 1, 1)
    assert ("A" in peers, "B" in peers, len(peers)) == (False, True, 1)
    assert peers.expire(SILENT_S + 2.1) == ["B"]
    assert (fleet["r0"].peer_load, len(peers)) == (IDLE, 0)


def test_a_router_that_leaves_is_forgotten_at_once() -> None:
    fleet, peers = world()
    peers.hear("A", said(sent(1, "r0", request().prompt), loads={"r0": Load(1_000, 2, 3)}), 0.0)
    assert fleet["r0"].mirror.held_bytes > 0
    peers.hear("A", GOOD_BYE, 0.1)
    assert (fleet["r0"].peer_load, fleet["r0"].mirror.held_bytes, len(peers)) == (IDLE, 0, 0)
    peers.hear("B", GOOD_BYE, 0.2)  # one that was never heard of
    peers.forget("C", 0.2)
    assert len(peers) == 0


def test_the_waiting_line_is_everybodys() -> None:
    fleet, peers = world(2)
    assert fleet["r0"].queue_s(0.0) == 0.0
    peers.hear("A", said(loads={"r0": Load(8_000, 1, 1)}), 0.0)
    assert fleet["r0"].queue_s(0.0) == 8_000 / RATE
    ticket = fleet.route(request(), 0.0, excluded=["r1"])
    assert fleet["r0"].queue_s(0.0) == (8_000 + ticket.entry.work.uncached) / RATE
    peers.hear("A", said(loads={"r0": IDLE}), 0.1)
    assert fleet["r0"].queue_s(0.1) == ticket.entry.work.uncached / RATE


def test_new_requests_avoid_where_others_have_sent_theirs() -> None:
    fleet, peers = world(3)
    peers.hear("A", said(loads={"r0": Load(4_000, 1, 1), "r2": Load(2_000, 1, 1)}), 0.0)
    keyless = RoutingRequest("m", "chat", None, 4)
    assert fleet.explain(keyless, 0.0).replica == "r1"
    assert fleet.explain(keyless, 0.0).alternates == ["r2", "r0"]


def test_ties_go_to_the_replica_least_recently_chosen_by_anybody() -> None:
    fleet, peers = world(3)
    keyless = RoutingRequest("m", "chat", None, 4)
    peers.hear("A", said(sent(1, "r0", tokens=0), sent(2, "r1", tokens=0)), 0.0)
    assert fleet.explain(keyless, 0.0).replica == "r2"
    peers.hear("A", said(sent(3, "r2", tokens=0)), 0.0)
    assert fleet.explain(keyless, 0.0).replica == "r0"


def test_others_recent_work_counts_in_the_share_of_new_sessions() -> None:
    fleet, peers = world(2)
    peers.hear("A", said(sent(1, "r0", tokens=5_000)), 10.0)
    assert (fleet["r0"].recent.work_s(10.0), fleet["r1"].recent.work_s(10.0)) == (5_000.0 / RATE, 0.0)
    assert fleet.explain(request(), 10.0).replica == "r1"


def test_what_peers_have_waiting_is_not_taken_for_foreign() -> None:
    fleet, peers = world(1)
    peers.hear("A", said(loads={"r0": Load(900, 3, 3)}), 0.0)
    fleet.observe_engine("r0", EngineReport(waiting=4, start_time_s=1.0))
    assert fleet["r0"].foreign_tokens == 500


# Requests


def test_a_request_is_held_here_until_it_has_ended_there() -> None:
    fleet, peers = world()
    asked = prompt(("user", "a" * 3_000))
    mirror = fleet["r1"].mirror
    peers.hear("A", said(sent(7, "r1", asked), oldest_open=7), 0.0)
    assert (mirror.held_bytes, mirror.idle_bytes, mirror.match(asked.hashes)) == (3_000, 0, 6)
    peers.hear("A", said(ended(7, answer_bytes=400), oldest_open=8), 1.0)
    assert (mirror.held_bytes, mirror.idle_bytes, mirror.match(asked.hashes)) == (0, 3_400, 6)
    assert mirror.holds_answer(asked.hashes[-1])
    assert dict(peers)["A"].open == {}


def test_what_the_engine_never_computed_is_forgotten_here_too() -> None:
    fleet, peers = world()
    shared, longer = prompt(("user", "a" * 1_024)), prompt(("user", "a" * 1_024), ("user", "b" * 600))
    mirror = fleet["r1"].mirror
    peers.hear("A", said(sent(1, "r1", shared), ended(1)), 0.0)
    peers.hear("A", said(sent(2, "r1", longer)), 1.0)
    assert mirror.match(longer.hashes) == 4
    peers.hear("A", said(ended(2, computed=False)), 2.0)
    assert (mirror.held_bytes, mirror.match(longer.hashes)) == (0, 2)


def test_an_overestimate_there_evicts_here_what_is_as_old() -> None:
    fleet, peers = world()
    old, other = prompt(("user", "a" * 1_024)), prompt(("user", "b" * 1_024))
    peers.hear("A", said(sent(1, "r0", other), ended(1)), 1.0)
    peers.hear("A", said(sent(2, "r0", old), ended(2)), 2.0)
    peers.hear("A", said(sent(3, "r0", old), ended(3, overestimated=True)), 3.0)
    mirror = fleet["r0"].mirror
    assert (mirror.match(other.hashes), mirror.match(old.hashes)) == (0, 2)


def test_an_engines_cache_is_as_large_as_the_other_router_learnt() -> None:
    fleet, peers = world(1)
    fleet.observe_engine("r0", EngineReport(kv_tokens=1_000, start_time_s=1.0))
    peers.hear("A", said(sent(1, "r0", request().prompt), Settled(1, True, False, 0, 5.0)), 0.0)
    assert fleet["r0"].mirror.capacity_bytes == 5_000.0


def test_the_end_of_a_request_that_was_not_heard_of_releases_it() -> None:
    fleet, peers = world()
    first, second = prompt(("user", "a" * 1_000)), prompt(("user", "b" * 2_000))
    mirror = fleet["r1"].mirror
    peers.hear("A", said(sent(1, "r1", first), sent(2, "r1", second), oldest_open=1), 0.0)
    peers.hear("A", said(oldest_open=1), 0.5)
    assert mirror.held_bytes == 3_000
    peers.hear("A", said(oldest_open=2), 1.0)  # the first one's end was lost on the way
    assert (mirror.held_bytes, mirror.idle_bytes) == (2_000, 1_000)
    assert mirror.match(first.hashes) == len(first.hashes)
    peers.hear("A", said(ended(1)), 1.5)  # or only late
    assert (mirror.held_bytes, mirror.idle_bytes) == (2_000, 1_000)


def test_an_end_without_a_beginning_leaves_its_turn_only() -> None:
    fleet, peers = world()
    asked = request().prompt
    assert asked is not None
    end = Settled(1, True, False, 400, 4.0, [(asked.hashes[-1], 500 << 24)])
    peers.hear("A", said(end), 0.0)
    assert fleet.index.turns.knows(asked.hashes[-1])
    assert [len(replica.mirror) for replica in fleet] == [0, 0, 0]


def test_a_beginning_that_comes_twice_is_held_once() -> None:
    """A batch that Redis took is sent again when its answer was lost."""
    fleet, peers = world()
    again = said(sent(1, "r0", request().prompt))
    for now in (0.0, 0.1):
        peers.hear("A", again, now)
    peers.hear("A", said(ended(1)), 1.0)
    assert fleet["r0"].mirror.held_bytes == 0
    assert dict(peers)["A"].open == {}


def test_what_comes_twice_counts_once_and_is_not_taken_for_computed() -> None:
    fleet, peers = world()
    asked = prompt(("user", "a" * 1_000))
    for news in ([sent(1, "r0", asked)], [sent(1, "r0", asked), ended(1, computed=False)]):
        peers.hear("A", said(*news), 0.0)
    peers.hear("A", said(sent(1, "r0", asked)), 0.0)
    assert fleet["r0"].recent.requests(0.0) == 1.0
    assert len(fleet["r0"].mirror) == 0
    assert dict(peers)["A"].open == {}


def test_a_router_that_was_forgotten_begins_anew() -> None:
    fleet, peers = world()
    asked = prompt(("user", "a" * 1_000))
    mirror = fleet["r0"].mirror
    peers.hear("A", said(sent(1, "r0", asked), loads={"r0": Load(250, 1, 1)}), 0.0)
    peers.expire(SILENT_S + 1)
    assert (mirror.held_bytes, mirror.idle_bytes) == (0, 1_000)
    peers.hear("A", said(ended(1), sent(2, "r0", asked), loads={"r0": Load(99, 1, 1)}, oldest_open=2), 5.0)
    assert (mirror.held_bytes, mirror.idle_bytes) == (1_000, 0)
    assert fleet["r0"].peer_load == Load(99, 1, 1)
    assert list(dict(peers)["A"].open) == [2]


def test_two_routers_tickets_of_one_number_are_two() -> None:
    fleet, peers = world()
    first, second = prompt(("user", "a" * 1_000)), prompt(("user", "b" * 2_000))
    mirror = fleet["r0"].mirror
    peers.hear("A", said(sent(1, "r0", first)), 0.0)
    peers.hear("B", said(sent(1, "r0", second)), 0.0)
    peers.hear("B", said(ended(1)), 1.0)
    assert mirror.held_bytes == 1_000
    peers.forget("A", 2.0)
    assert mirror.held_bytes == 0


@pytest.mark.parametrize("end", [said(ended(1)), said(oldest_open=9), GOOD_BYE], ids=["told", "unheard", "left"])
def test_a_replica_may_leave_and_come_back_while_a_peers_request_runs_there(end: Bulletin) -> None:
    fleet, peers = world()
    before = fleet["r0"].mirror
    peers.hear("A", said(sent(1, "r0", request().prompt), loads={"r0": Load(250, 1, 1)}), 0.0)
    fleet.remove("r0")
    assert fleet.index.size_bytes > 0, "the turn's end is still known"
    links_bytes = fleet.index.size_bytes
    after = fleet.add("r0")
    peers.hear("A", end, 1.0)
    assert (before.held_bytes, len(after.mirror), fleet.index.size_bytes) == (0, 0, links_bytes)
    peers.hear("A", said(whole=True), 2.0)
    assert after.peer_load == IDLE


def test_a_restart_of_the_engine_while_a_peers_request_runs_there_leaves_nothing_held() -> None:
    fleet, peers = world()
    peers.hear("A", said(sent(1, "r0", request().prompt)), 0.0)
    fleet.forget_residency("r0")
    peers.hear("A", said(ended(1)), 1.0)
    assert (fleet["r0"].mirror.held_bytes, len(fleet["r0"].mirror)) == (0, 0)


def test_a_replica_that_is_not_known_here_is_passed_over() -> None:
    fleet, peers = world()
    session = request("a", "s").session
    assert session is not None
    news: list[News] = [sent(1, "r9", request().prompt), ended(1), Homed(5, "r9"), Homed(6, "r1"), sent(2, "r9")]
    peers.hear("A", said(*news, loads={"r9": Load(1, 1, 1), "r1": Load(2, 1, 1)}), 0.0)
    assert [replica.peer_load for replica in fleet] == [IDLE, Load(2, 1, 1), IDLE]
    assert (fleet.index.homes.get(5), fleet.index.homes.get(6)) == (None, "r1")
    assert dict(peers)["A"].open == {}
    peers.forget("A", 1.0)


def test_what_there_is_no_room_for_is_counted_and_not_held() -> None:
    fleet = Fleet(index_bytes=20_000)
    fleet.add("r0")
    peers = Peers(fleet)
    big = chat(("user", BLOCK.decode() * 300)).prompt
    peers.hear("A", said(sent(1, "r0", big, tokens=30_000)), 0.0)
    assert (fleet["r0"].mirror.held_bytes, fleet["r0"].recent.work_s(0.0)) == (0, 30_000.0 / RATE)
    peers.hear("A", said(ended(1)), 1.0)
    assert fleet["r0"].mirror.held_bytes == 0


# Two fleets


def served(fleet: Fleet, asked: RoutingRequest, now: float) -> tuple[Ticket, list[News]]:
    ticket = fleet.route(asked, now)
    beginning = opened(ticket)
    fleet.first_byte(ticket, now)
    usage = Usage(1_000, 0, 50, "stop")
    return ticket, [beginning, settled(ticket, fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200, usage), now))]


def test_the_next_turn_is_warm_at_the_other_router_even_before_the_answer() -> None:
    one, (other, peers) = fleet_of(3), world(3)
    asked = request("a", "s")
    assert asked.prompt is not None
    ticket = one.route(asked, 0.0)
    peers.hear("A", said(opened(ticket)), 0.0)
    follow = chat(("user", "a " * 1_000), ("assistant", "yes"), ("user", "and?" * 200))
    before = other.explain(follow, 0.1)
    assert (before.replica, before.reason) == (ticket.replica.replica_id, Reason.WARM)
    assert other.index.homes.get(asked.session or 0) == ticket.replica.replica_id


def test_the_engines_own_counts_are_known_at_the_other_router() -> None:
    one, (other, peers) = fleet_of(3), world(3)
    _, news = served(one, request(), 0.0)
    peers.hear("A", said(*news), 0.0)
    follow = chat(("user", "a " * 1_000), ("assistant", "yes"), ("user", "and?" * 200))
    assert other.explain(follow, 0.1).matched_tokens == one.explain(follow, 0.1).matched_tokens > 0


def test_a_session_follows_where_a_peer_has_moved_it() -> None:
    fleet, peers = world()
    keyless = RoutingRequest("m", "chat", None, 100, session=7, session_is_explicit=True)
    peers.hear("A", said(Opened(1, "r2", 10, session=7)), 0.0)
    assert (fleet.explain(keyless, 1.0).replica, fleet.explain(keyless, 1.0).reason) == ("r2", Reason.SESSION)
    peers.hear("A", said(Homed(7, "r1")), 2.0)
    assert fleet.explain(keyless, 3.0).replica == "r1"
