from collections import Counter

import pytest

from router.core.fleet import Fleet
from router.core.policies import POLICIES
from router.core.replica import IDLE, Load
from router.core.types import (
    EngineReport,
    NoReplicaError,
    Outcome,
    OutcomeKind,
    Reason,
    RoutingRequest,
    UnknownModelError,
    Usage,
)
from tests.core.worlds import answered, chat, fleet_of

SYSTEM = ("system", "You are helpful. " * 200)


def turns(count: int, name: str = "a") -> list[tuple[str, str]]:
    said = [SYSTEM, ("user", f"{name}: tell me of the sea " * 20)]
    for number in range(1, count):
        said += [("assistant", f"answer {number} to {name} " * 20), ("user", f"{name} asks on, {number} " * 20)]
    return said


def test_the_next_turn_goes_to_the_warm_replica() -> None:
    fleet = fleet_of(4)
    home = answered(fleet, chat(*turns(1)), now=0).decision
    assert home.reason is Reason.NEW
    for count in range(2, 8):
        decision = answered(fleet, chat(*turns(count)), now=count * 30).decision
        assert (decision.reason, decision.replica, decision.home) == (Reason.WARM, home.replica, home.replica)
        assert decision.matched_tokens > 0


def test_an_edited_history_keeps_its_match_up_to_the_edit() -> None:
    fleet = fleet_of(2)
    said = turns(3)
    answered(fleet, chat(*said), now=0)
    said[3] = ("user", "something else " * 30)
    scores = fleet.explain(chat(*said), 1.0).scores
    assert max(score.matched_blocks for score in scores) == 9  # 7 of the system prompt, 1 question, 1 answer


def test_distinct_prompts_that_share_a_system_prompt_spread() -> None:
    burst, serial = fleet_of(4), fleet_of(4)
    chosen = Counter(burst.route(chat(SYSTEM, ("user", f"{n} " * 200)), 0.0).decision.replica for n in range(48))
    assert max(chosen.values()) <= 18
    chosen = Counter(
        answered(serial, chat(SYSTEM, ("user", f"{n} " * 200)), float(n)).decision.replica for n in range(200)
    )
    assert max(chosen.values()) <= 60


def test_one_hot_replica_spills_its_own_sessions_only() -> None:
    fleet = fleet_of(4)
    homes = {}
    for number in range(12):
        homes[number] = answered(fleet, chat(*turns(1, f"s{number}")), float(number)).decision.replica
    hot = homes[0]
    fleet[hot].ledger.prefill_s += 25.0
    for number, home in homes.items():
        decision = fleet.explain(chat(*turns(2, f"s{number}")), 20.0)
        if home == hot:
            assert decision.reason is Reason.SPILLED
        else:
            assert (decision.replica, decision.reason) == (home, Reason.WARM)


def test_a_session_header_wins_over_the_prefix_and_follows_its_last_turn() -> None:
    fleet = fleet_of(3)
    first = answered(fleet, chat(*turns(1), session="s"), 0.0).decision
    rewritten = chat(("user", "a wholly different history " * 40), session="s")
    assert fleet.explain(rewritten, 1.0).reason is Reason.SESSION
    assert fleet.explain(rewritten, 1.0).replica == first.replica
    assert fleet.explain(chat(("user", "another " * 100), session="s2"), 1.0).reason is Reason.NEW


def test_a_hint_that_is_not_explicit_gives_way_to_the_prefix() -> None:
    fleet = fleet_of(2)
    soft = chat(*turns(1), session="cache-key")._replace(session_is_explicit=False)
    other = chat(*turns(1, "b"), session="cache-key")._replace(session_is_explicit=False)
    first = answered(fleet, soft, 0.0).decision.replica
    second = answered(fleet, other, 1.0).decision.replica
    assert first != second  # one cache key for all users does not gather them on one replica
    assert fleet.explain(chat(*turns(2)), 2.0).replica == first


def test_keyless_and_unread_requests_share_no_key_and_go_by_load() -> None:
    fleet = fleet_of(4)
    short = RoutingRequest("m", "chat", None, 100)
    unread = RoutingRequest("m", "unknown", None, 100_000)
    assert [fleet.route(short, 0.0).decision.reason for _ in range(4)] == [Reason.KEYLESS] * 4
    assert {replica.ledger.streams for replica in fleet} == {1}
    assert fleet.route(unread, 0.0).decision.reason is Reason.UNKNOWN_SHAPE


def test_failed_and_excluded_replicas_are_out_before_affinity() -> None:
    fleet = fleet_of(3)
    home = answered(fleet, chat(*turns(1)), 0.0).decision.replica
    retry = fleet.route(chat(*turns(2)), 1.0, excluded=[home])
    assert (retry.decision.reason, retry.decision.replica == home) == (Reason.FAILOVER, False)
    fleet.settle(retry, Outcome(OutcomeKind.CLIENT_LEFT), 1.0)
    fleet[home].health.failed(OutcomeKind.REFUSED, 1.0)
    moved = answered(fleet, chat(*turns(2)), 1.1).decision
    assert (moved.reason, moved.home) == (Reason.FAILOVER, home)
    assert moved.replica != home
    fleet[home].health.succeeded(1.2)
    followed = fleet.explain(chat(*turns(3)), 2.0)
    assert followed.replica == moved.replica  # the placement made on the fall-back path was learnt


def test_all_ejected_all_are_tried_and_none_is_an_error() -> None:
    fleet = fleet_of(2)
    for replica in fleet:
        replica.health.failed(OutcomeKind.REFUSED, 0.0)
    assert fleet.route(chat(*turns(1)), 0.0).decision.replica in ("r0", "r1")
    with pytest.raises(NoReplicaError):
        fleet.route(chat(*turns(1)), 0.0, excluded=["r0", "r1"])
    with pytest.raises(NoReplicaError):
        Fleet().explain(chat(*turns(1)), 0.0)


def test_adding_a_replica_moves_no_session_and_removing_one_moves_only_its_own() -> None:
    fleet = fleet_of(3)
    homes = {}
    for number in range(30):
        homes[number] = answered(fleet, chat(*turns(1, f"s{number}")), float(number)).decision.replica
    fleet.add("r3")
    for number, home in homes.items():
        assert fleet.explain(chat(*turns(2, f"s{number}")), 40.0).replica == home
    fleet.remove("r0")
    moved: Counter[str] = Counter()
    for number, home in homes.items():
        now_at = answered(fleet, chat(*turns(2, f"s{number}")), 41.0 + number).decision.replica
        if home == "r0":
            moved[now_at] += 1
        else:
            assert now_at == home
    assert len(moved) == 3


def test_models_do_not_mix() -> None:
    fleet = fleet_of(2)
    fleet["r0"].models, fleet["r1"].models = frozenset({"a"}), frozenset({"b"})
    for _ in range(4):
        assert fleet.route(chat(*turns(1), model="b"), 0.0).decision.replica == "r1"
    assert fleet["r0"].ledger.streams == 0
    with pytest.raises(UnknownModelError):
        fleet.explain(chat(*turns(1), model="nobody's"), 0.0)
    fleet.forward_unknown = True
    assert fleet.explain(chat(*turns(1), model="nobody's"), 0.0).replica == "r0"  # for the engine's own 404
    fleet["r1"].models = frozenset()
    fleet.forward_unknown = False
    assert fleet.explain(chat(*turns(1), model="nobody's"), 0.0).replica == "r1", "it has not said yet what it serves"


def test_a_stored_object_is_found_where_it_is_stored() -> None:
    fleet = fleet_of(3)
    fleet.index.homes.put(7, "r2")
    request = RoutingRequest("", "unknown", None, 0, stored=7)
    assert (fleet.explain(request, 0.0).replica, fleet.explain(request, 0.0).reason) == ("r2", Reason.PINNED)


def test_settling_twice_is_an_error() -> None:
    fleet = fleet_of(1)
    ticket = answered(fleet, chat(*turns(1)), 0.0)
    with pytest.raises(RuntimeError):
        fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200), 1.0)
    assert fleet["r0"].ledger.streams == 0


@pytest.mark.parametrize("kind", [OutcomeKind.REFUSED, OutcomeKind.RESET, OutcomeKind.BUSY])
def test_an_attempt_that_did_no_work_leaves_no_residency(kind: OutcomeKind) -> None:
    fleet = fleet_of(1)
    fleet.settle(fleet.route(chat(*turns(1)), 0.0), Outcome(kind, 503), 0.1)
    assert len(fleet["r0"].mirror) == 0
    assert fleet.index.size_bytes == 0


def test_4xx_says_nothing_of_a_replica_and_teaches_no_session() -> None:
    fleet = fleet_of(2)
    fleet.settle(fleet.route(chat(*turns(1), session="s"), 0.0), Outcome(OutcomeKind.COMPLETED, 400), 0.1)
    assert all(replica.health.up for replica in fleet)
    assert len(fleet.index.homes) == 0
    assert fleet.explain(chat(*turns(1), session="s"), 1.0).reason is Reason.NEW


def test_a_restart_seen_in_the_metrics_empties_the_mirror() -> None:
    fleet = fleet_of(1)
    answered(fleet, chat(*turns(1)), 0.0)
    assert not fleet.observe_engine("r0", EngineReport(start_time_s=1.0, prefix_queries_tokens=500.0))
    assert len(fleet["r0"].mirror) > 0
    assert fleet.observe_engine("r0", EngineReport(start_time_s=99.0, prefix_queries_tokens=0.0))
    assert len(fleet["r0"].mirror) == 0


def test_counters_that_go_back_mean_a_restart_where_no_start_time_is_told() -> None:
    fleet = Fleet()
    fleet.add("r0")
    answered(fleet, chat(*turns(1)), 0.0)
    assert not fleet.observe_engine("r0", EngineReport(prefix_queries_tokens=500.0))
    assert fleet.observe_engine("r0", EngineReport(prefix_queries_tokens=20.0))
    assert len(fleet["r0"].mirror) == 0


def test_a_hit_that_did_not_come_empties_what_was_older() -> None:
    fleet = fleet_of(1)
    old, newer, newest = turns(1, "old"), turns(1, "newer"), turns(1, "newest")
    for said in (old, newer, newest):
        said[1] = ("user", said[1][1] * 3)
    for now, said in enumerate((old, newer, newest)):
        answered(fleet, chat(*said[1:]), now * 10.0)
    answered(fleet, chat(*newer[1:], ("assistant", "x" * 600), ("user", "on")), 40.0, cached=0)
    decisions = {name: fleet.explain(chat(*said[1:]), 50.0) for name, said in (("old", old), ("newest", newest))}
    assert decisions["old"].matched_tokens == 0
    assert decisions["newest"].matched_tokens > 0


def test_the_rate_of_a_replica_is_learnt_from_its_first_bytes() -> None:
    fleet = fleet_of(2)
    now = 0.0
    for number in range(200):
        slow = number % 2 == 0
        ticket = fleet.route(chat(("user", f"{number} " * 4_000)), now, excluded=["r1" if slow else "r0"])
        now += ticket.decision.prompt_tokens / (1_000 if slow else 4_000)
        fleet.first_byte(ticket, now)
        fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200, Usage()), now)
    assert fleet["r0"].prefill.tokens_per_s == pytest.approx(1_000, rel=0.2)
    assert fleet["r1"].prefill.tokens_per_s == pytest.approx(4_000, rel=0.2)


def test_back_pressure_keeps_new_work_away_for_a_while() -> None:
    fleet = fleet_of(2)
    ticket = fleet.route(chat(*turns(1)), 0.0)
    busy = ticket.decision.replica
    fleet.settle(ticket, Outcome(OutcomeKind.BUSY, 429, Usage(), 5.0), 0.1)
    assert fleet[busy].health.up
    chosen = [fleet.route(chat(*turns(1, f"n{n}")), 0.2).decision.replica for n in range(3)]
    assert busy not in chosen


def test_an_engine_asleep_gets_nothing() -> None:
    fleet = fleet_of(2)
    fleet.observe_engine("r0", EngineReport(asleep=True, start_time_s=1.0))
    assert {fleet.route(chat(*turns(1, str(n))), 0.0).decision.replica for n in range(4)} == {"r1"}


def test_unknown_gauges_are_unknown_and_lasting_facts_stay() -> None:
    fleet = fleet_of(1)
    fleet.observe_engine("r0", EngineReport(waiting=9, kv_usage_ratio=0.99, kv_tokens=1000, start_time_s=1.0))
    assert fleet["r0"].queue_s(0.0) > 0
    fleet.lost_sight_of("r0")
    assert fleet["r0"].queue_s(0.0) == 0
    assert fleet["r0"].report == EngineReport(kv_tokens=1000, block_tokens=16, start_time_s=1.0)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_serves_and_learns(policy: str) -> None:
    fleet = fleet_of(4, POLICIES[policy])
    for number in range(40):
        answered(fleet, chat(*turns(1 + number // 20, f"s{number % 20}")), float(number))
    assert sum(len(replica.mirror) > 0 for replica in fleet) >= 2
    assert sum(replica.ledger.streams for replica in fleet) == 0


def test_session_hash_keeps_sessions_and_round_robin_does_not() -> None:
    hashed, rotating = fleet_of(4, POLICIES["session-hash"]), fleet_of(4, POLICIES["round-robin"])
    places = [answered(hashed, chat(*turns(n + 1), session="s"), float(n)).decision.replica for n in range(4)]
    assert len(set(places)) == 1
    rounds = [answered(rotating, chat(*turns(1)), float(n)).decision.replica for n in range(8)]
    assert rounds == ["r0", "r1", "r2", "r3"] * 2


def test_prefix_hash_passes_over_a_replica_above_its_bound() -> None:
    fleet = fleet_of(4, POLICIES["prefix-hash"])
    chosen = Counter(fleet.route(chat(*turns(1)), 0.0).decision.replica for _ in range(40))
    assert max(chosen.values()) <= 13  # 1.25 x 10, rounded up


def test_replicas_that_were_not_measured_yet_are_believed_to_be_as_fast_as_the_others() -> None:
    fleet, now = fleet_of(4), 0.0
    chosen: Counter[str] = Counter()
    for number in range(200):
        ticket = fleet.route(chat(SYSTEM, ("user", f"{number} " * 900)), now)
        chosen[ticket.decision.replica] += 1
        now += ticket.entry.work.uncached / 80_000  # ten times the prior
        fleet.first_byte(ticket, now)
        fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200, Usage()), now)
    assert min(chosen.values()) >= 35
    assert fleet.add("late").prefill.tokens_per_s == pytest.approx(80_000, rel=0.1)


def test_a_speed_is_not_learnt_from_prefills_that_waited_for_other_routers_requests() -> None:
    """Its first byte came when their prompts were prefilled as well: the speed would seem a fraction of what it is."""
    fleet = fleet_of(1)
    replica = fleet["r0"]
    before = replica.prefill.tokens_per_s
    for number in range(8):
        replica.peer_load = Load(10_000, 2, 2) if number % 2 else IDLE
        ticket = fleet.route(chat(*turns(1, f"s{number}")), number * 10.0)
        replica.peer_load = IDLE if number % 4 == 1 else Load(10_000, 2, 2)
        fleet.first_byte(ticket, number * 10.0 + 5.0)
        fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200), number * 10.0 + 6.0)
    assert replica.prefill.tokens_per_s == before
    assert not replica.prefill.measured
