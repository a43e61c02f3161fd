"""A shortlist decides as the whole fleet would: the same for who has a home, nearly as cheap for who has none."""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.core.fleet import Fleet
from router.core.holders import HOLDER_BYTES
from router.core.price import Weights, affinity, priced
from router.core.shortlist import HOLDERS, LARGE, SAMPLED
from router.core.ticket import Ticket
from router.core.types import (
    Decision,
    EngineReport,
    NoReplicaError,
    Outcome,
    OutcomeKind,
    Prompt,
    Reason,
    RoutingRequest,
    UnknownModelError,
    Usage,
)
from tests.core.worlds import answered, chat

everybody_priced = priced(Weights())
"""The same price without a shortlist, which is `affinity`'s alone."""


def large(count: int = LARGE + 12, seed: int = 0) -> Fleet:
    fleet = Fleet(affinity, 64 << 20, tie_seed=seed)
    for number in range(count):
        fleet.add(f"r{number}")
        fleet.observe_engine(f"r{number}", EngineReport(kv_tokens=60_000, block_tokens=16, start_time_s=1.0))
    return fleet


class Traffic:
    """Sessions with one of a few system prompts, in blocks of 128 tokens; some requests are always in flight."""

    def __init__(self, seed: int, replicas: int) -> None:
        self.chance, self.fleet = Random(seed), large(replicas)
        self.systems = [self._blocks(self.chance.randint(2, 20)) for _ in range(6)]
        self.sessions: dict[int, tuple[list[int], list[int]]] = {}
        self.flying: list[Ticket] = []
        self.rate = replicas * 0.8
        self.now = 0.0

    def next(self) -> RoutingRequest:
        chance = self.chance
        self.now += chance.expovariate(self.rate)
        while self.flying and chance.random() < 0.6:
            self._answer(self.flying.pop(chance.randrange(len(self.flying))))
        name = chance.randrange(300)
        if name in self.sessions:
            hashes, answers_at = self.sessions[name]
            answers_at.append(len(hashes))
        else:
            hashes, answers_at = self.sessions[name] = list(chance.choice(self.systems)), []
        hashes += self._blocks(chance.randint(2, 30))
        prompt = Prompt(list(hashes), [512 * (n + 1) for n in range(len(hashes))], list(answers_at), None)
        return RoutingRequest("m", "chat", prompt, 1_000, True)

    def send(self, request: RoutingRequest) -> None:
        self.flying.append(self.fleet.route(request, self.now))

    def both(self, request: RoutingRequest) -> tuple[Decision, Decision]:
        """Decide with everybody priced, and with a shortlist."""
        self.fleet.policy = everybody_priced
        whole = self.fleet.explain(request, self.now)
        self.fleet.policy = affinity
        return whole, self.fleet.explain(request, self.now)

    def _answer(self, ticket: Ticket) -> None:
        decision = ticket.decision
        usage = Usage(decision.prompt_tokens, decision.matched_tokens, 100, "stop")
        self.fleet.first_byte(ticket, self.now)
        self.fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200, usage), self.now)

    def _blocks(self, count: int) -> list[int]:
        return [self.chance.getrandbits(64) for _ in range(count)]


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from([60, 120]))
def test_who_is_best_off_at_home_stays_there(seed: int, replicas: int) -> None:
    traffic = Traffic(seed, replicas)
    stayed = 0
    for _ in range(400):
        request = traffic.next()
        whole, few = traffic.both(request)
        assert whole.home == few.home
        if whole.replica == whole.home:
            assert few.replica == whole.replica
            stayed += 1
        traffic.send(request)
    assert stayed > 30


def test_the_share_of_same_decisions_and_what_the_others_cost() -> None:
    kinds, alike, more_s = Counter[str](), Counter[str](), defaultdict[str, float](float)
    for seed in range(2):
        traffic = Traffic(seed, 60)
        for step in range(1_000):
            request = traffic.next()
            if step > 200:
                whole, few = traffic.both(request)
                kind = "new" if whole.home is None else "stays" if whole.replica == whole.home else "leaves"
                prices = {score.replica: score.total_s for score in whole.scores}
                kinds[kind] += 1
                alike[kind] += (whole.replica == whole.home) == (few.replica == few.home)
                more_s[kind] += prices[few.replica] - prices[whole.replica]
            traffic.send(request)
    assert alike["stays"] == kinds["stays"] > 300
    assert alike["leaves"] >= 0.8 * kinds["leaves"]
    assert more_s["new"] / kinds["new"] < 0.1  # seconds of a price in which a second of prefill is some seven


def test_scores_are_of_some_in_a_large_fleet_and_of_all_in_a_small_one() -> None:
    assert len(large(LARGE).explain(chat(("user", "a" * 900)), 0.0).scores) == LARGE
    scores = large(LARGE + 1).explain(chat(("user", "a" * 900)), 0.0).scores
    assert LARGE // 3 < len(scores) <= SAMPLED
    assert len({score.replica for score in scores}) == len(scores)


def test_a_hot_prefix_has_more_holders_than_are_asked() -> None:
    fleet = large(200)
    for number in range(100):
        others = tuple(one.replica_id for one in fleet if one.replica_id != f"r{number}")
        ticket = fleet.route(chat(("system", "a" * 900), ("user", f"{number}")), 0.0, others)
        assert ticket.decision.replica == f"r{number}"
    scores = fleet.explain(chat(("system", "a" * 900), ("user", "new")), 1.0).scores
    holding = [score for score in scores if score.matched_blocks]
    assert len(holding) > HOLDERS // 2
    assert len(scores) <= HOLDERS + SAMPLED


def test_a_home_is_found_among_hundreds_and_left_when_it_fails() -> None:
    fleet = large(300)
    home = answered(fleet, chat(("system", "s" * 900), ("user", "hello" * 99)), 0.0).decision.replica
    turn = chat(("system", "s" * 900), ("user", "hello" * 99), ("assistant", "yes"), ("user", "go on" * 99))
    for _ in range(20):
        assert fleet.explain(turn, 5.0).replica == home
        assert fleet.explain(turn, 5.0).reason is Reason.WARM
    fleet[home].health.failed(OutcomeKind.REFUSED, 5.0)
    moved = fleet.explain(turn, 5.0)
    assert moved.replica != home
    assert (moved.reason, moved.home) == (Reason.FAILOVER, home)


def test_a_named_home_is_asked_whatever_it_holds() -> None:
    fleet = large(300)
    home = answered(fleet, chat(("user", "hi" * 300), session="mine"), 0.0).decision.replica
    later = fleet.explain(chat(("user", "something else" * 90), session="mine"), 5.0)
    assert (later.replica, later.reason) == (home, Reason.SESSION)


def test_who_alone_serves_a_model_is_found() -> None:
    fleet = large(300)
    for replica in fleet:
        replica.models = frozenset({"m"})
    fleet["r7"].models = frozenset({"rare"})
    assert fleet.explain(chat(("user", "a" * 900), model="rare"), 0.0).replica == "r7"
    with pytest.raises(UnknownModelError):
        fleet.explain(chat(("user", "a" * 900), model="none"), 0.0)


def test_a_fleet_of_which_few_are_fit_is_asked_as_a_whole() -> None:
    fleet = large(300)
    everyone = [replica.replica_id for replica in fleet]
    for name in everyone[:-2]:
        fleet[name].health.drain(0.0)
    chosen = {fleet.route(chat(("user", "a" * 900)), 0.0).decision.replica for _ in range(4)}
    assert chosen == set(everyone[-2:])
    with pytest.raises(NoReplicaError):
        fleet.route(chat(("user", "a" * 900)), 0.0, everyone)


def test_routers_sample_differently() -> None:
    request = chat(("user", "a" * 900))
    asked = [{score.replica for score in large(300, seed).explain(request, 0.0).scores} for seed in (1, 2, 1)]
    assert asked[0] == asked[2]
    assert len(asked[0] & asked[1]) < SAMPLED / 2


def test_a_fleet_that_grows_knows_what_its_replicas_hold() -> None:
    fleet = large(LARGE)
    homes = [answered(fleet, chat(("user", f"{n} " * 400)), 0.0).decision.replica for n in range(10)]
    for number in range(200):
        fleet.add(f"more{number}")
    turns = [chat(("user", f"{n} " * 400), ("assistant", "a"), ("user", "b")) for n in range(10)]
    assert [fleet.explain(turn, 1.0).replica for turn in turns] == homes
    for home in set(homes):
        fleet.remove(home)
    assert not {fleet.explain(turn, 1.0).replica for turn in turns} & set(homes)


def test_the_index_of_a_large_fleet_counts_what_the_shortlist_takes() -> None:
    small, fleet = large(LARGE), large(LARGE + 1)
    for one in (small, fleet):
        answered(one, chat(("user", "x" * 512 * 20)), 0.0)
    blocks = sum(len(replica.mirror) for replica in fleet)
    assert blocks >= 20
    assert fleet.index.size_bytes - small.index.size_bytes == HOLDER_BYTES * blocks
