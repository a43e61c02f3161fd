"""Everything that can be asked of a fleet, in any order, beside a simple model of it.

Counts are the model's at every step and zero at the end; a mirror is never larger than its engine's cache, nor the
index than its budget; a decision names a replica that may be asked whenever there is one, and never another; nobody is
credited with more than was sent there, or than its engine has told of; a replica that leaves leaves nothing behind; and
a history that is played again gives the same answers, in this process and in others with other hash seeds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from router.core.peers import SILENT_S
from router.core.policies import POLICIES
from router.core.types import OutcomeKind, Usage
from tests.properties import fleet_checks as checks
from tests.properties.deeper import runs
from tests.properties.fleet_asks import Ask, engine_blocks, prompt_of, request_of
from tests.properties.fleet_machine import FleetMachine, asks, keyed_asks, luck, picks, some_replicas
from tests.properties.fleet_model import Attempt, ModelReplica
from tests.properties.fleet_player import Held, History, Said, Sent, digest_of

ROOT = Path(__file__).parents[2]

MOST_KEPT = 60
"""Histories that are played in other processes, the last ones."""

some_told = precondition(lambda self: self.told and any(replica.live for replica in self.model.replicas.values()))
some_live = precondition(lambda self: any(replica.live for replica in self.model.replicas.values()))


class Everything(FleetMachine):
    """And the queue, other routers, engines' own events, touches, and restarts of the router itself."""

    def __init__(self, played: list[History]) -> None:
        super().__init__()
        self.played = played
        self.told: list[Ask] = []
        """Prompts of which engines have told that they have blocks."""

    # The queue

    @rule(ask=asks, tenant=st.integers(0, 2))
    def admit(self, ask: Ask, tenant: int) -> None:
        allowed = self.allowed(ask)
        found = self.play("admit", ask, tenant, self.now)
        if isinstance(found, Held):
            self.model.waiting.add(found.number)
        elif found != "QueueFullError":
            self.check(ask, found, allowed)
        self.turn_away()

    def turn_away(self) -> None:
        for number in self.play("turn_away", self.now):
            self.model.waiting.remove(number)

    @rule(how=st.sampled_from(["tick", "reconsider", "released"]), pick=picks)
    def send_those_who_wait(self, how: str, pick: int) -> None:
        if how != "released":
            self.sent(self.play(how, self.now))
        elif self.model.replicas:
            self.sent(self.play(how, self.at(pick).name, self.now))
        self.turn_away()

    def sent(self, sent: list[tuple[int, Sent]]) -> None:
        for number, one in sent:
            self.model.waiting.remove(number)
            self.check(one.ask, one, self.allowed(one.ask))

    @precondition(lambda self: self.model.waiting)
    @rule(pick=picks)
    def leave(self, pick: int) -> None:
        number = sorted(self.model.waiting)[pick % len(self.model.waiting)]
        self.play("leave", number)
        self.model.waiting.remove(number)

    # Other routers

    @rule(
        router=st.sampled_from("AB"),
        ask=st.none() | asks,
        pick=picks,
        again=st.booleans(),
        end=st.none() | picks,
        computed=st.booleans(),
        loads=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3)), max_size=3, unique_by=lambda load: load[0]),
        whole=st.booleans(),
        lost=luck,
        leaving=luck,
    )
    def hear(
        self, router: str, ask: Ask | None, pick: int, again: bool, end: int | None, computed: bool,
        loads: list[tuple[int, int]], whole: bool, lost: int, leaving: int,
    ) -> None:  # fmt: skip
        open_there = list(self.model.peers.get(router, {}))
        self.numbers += 1
        number = open_there[0] if again and open_there else self.numbers
        names = [*self.model.replicas, "gone"]
        said = Said(
            sent=() if ask is None else ((number, ask, names[pick % len(names)]),),
            ended=() if end is None or not open_there else ((open_there[end % len(open_there)], computed, 200),),
            loads=tuple((f"r{place}", (100 * count, count, count)) for place, count in loads),
            whole=whole,
            oldest_open=0 if lost else self.numbers,
            leaving=not leaving,
        )
        self.tell(router, said)

    def tell(self, router: str, said: Said) -> None:
        self.play("hear", router, said, self.now)
        self.model.hear(router, said, self.now)

    @some_replicas
    @rule(router=st.sampled_from("AB"), ask=keyed_asks, pick=picks, computed=st.booleans(), lost=st.booleans())
    def other_router_has_a_turn(self, router: str, ask: Ask, pick: int, computed: bool, lost: bool) -> None:
        """It tells of the end, or that is lost and told by the numbers of the next bulletin."""
        self.numbers += 1
        number = self.numbers
        self.tell(router, Said(sent=((number, ask, self.at(pick).name),)))
        checks.check_memory(self.model, self.player)
        self.tell(router, Said(oldest_open=number + 1) if lost else Said(ended=((number, computed, 200),)))

    @precondition(lambda self: self.model.peers)
    @rule()
    def expire_peers(self) -> None:
        silent = [router for router, heard_s in self.model.heard_s.items() if self.now - heard_s > SILENT_S]
        assert self.play("expire_peers", self.now) == silent
        for router in silent:
            self.model.forget_router(router)

    @rule(ask=asks, holders=st.lists(picks, max_size=3), home=st.none() | picks)
    def recollect(self, ask: Ask, holders: list[int], home: int | None) -> None:
        names = [*self.model.replicas, "gone"]
        there = tuple({names[pick % len(names)]: None for pick in holders})
        at = None if home is None else names[home % len(names)]
        blocks = self.play("recollect", ask, there, at, self.now)
        request, prompt = request_of(ask), prompt_of(ask)
        for name in there:
            if prompt is not None and name in self.model.replicas:
                self.model.replicas[name].computed.update(prompt.hashes[:blocks])
        for key in (request.session, request.stored):
            if key is not None and at is not None:
                self.model.homes.setdefault(key, at)

    # Engines' own words

    def live(self, pick: int) -> ModelReplica:
        live = [replica for replica in self.model.replicas.values() if replica.live]
        return live[pick % len(live)]

    @some_replicas
    @rule(pick=picks)
    def follow(self, pick: int) -> None:
        self.play("follow", self.at(pick).name)
        self.at(pick).live = True

    def check_held(self, replica: ModelReplica, ask: Ask) -> None:
        assert self.play("held", replica.name, ask) == replica.told_tokens(ask)

    @some_told
    @rule(pick=picks, told=picks)
    def route_what_is_told(self, pick: int, told: int) -> None:
        ask = msgspec.structs.replace(self.told[told % len(self.told)], tokens=True)
        self.route_to_replica(self.live(pick).name, ask)

    @some_live
    @rule(pick=picks, luck=luck)
    def lose_events(self, pick: int, luck: int) -> None:
        if not luck:
            replica = self.live(pick)
            self.play("lose_events", replica.name)
            replica.live = False
            replica.copies.clear()

    @some_live
    @rule(
        pick=picks,
        ask=keyed_asks,
        start=picks,
        count=st.integers(1, 30),
        medium=st.sampled_from(["gpu", "gpu", "cpu", "disk"]),
        label=st.none() | picks,
        then=st.sampled_from([None, "gpu", "cpu"]),
    )
    def stored(
        self, pick: int, ask: Ask, start: int, count: int, medium: str, label: int | None, then: str | None
    ) -> None:
        """An engine has computed some blocks of a prompt behind what it has, or the same ones once more."""
        replica, blocks = self.live(pick), engine_blocks(ask)
        start %= min(replica.leading(blocks) + 1, len(blocks))
        numbers = list(self.model.open)
        named = None if label is None or not numbers else numbers[label % len(numbers)]
        stop = min(start + count, len(blocks))
        self.play("stored", replica.name, ask, start, stop, medium, named)
        replica.stored(blocks[start:stop], medium)
        self.told.append(ask)
        if then is not None and stop < len(blocks):  # and what follows, elsewhere
            self.play("stored", replica.name, ask, stop, len(blocks), then, named)
            replica.stored(blocks[stop:], then)
        self.check_held(replica, ask)

    @some_live
    @rule(pick=picks, key=st.integers(0, 9))
    def stored_behind_a_gap(self, pick: int, key: int) -> None:
        self.play("stored_behind_a_gap", self.live(pick).name, key)

    @some_told
    @rule(pick=picks, told=picks, count=st.integers(1, 100), middle=st.booleans(),
          medium=st.sampled_from(["gpu", "gpu", "cpu", "disk"]))  # fmt: skip
    def gone(self, pick: int, told: int, count: int, middle: bool, medium: str) -> None:
        """An engine has evicted blocks, from a prompt's end as it does, or from its beginning."""
        replica, ask = self.live(pick), self.told[told % len(self.told)]
        blocks = engine_blocks(ask)
        evicted = blocks[:count] if middle else blocks[-count:]
        self.play("gone", replica.name, tuple(evicted), medium)
        replica.gone(evicted, medium)
        self.check_held(replica, ask)

    @some_told
    @rule(pick=picks)
    def cleared(self, pick: int) -> None:
        self.play("cleared", self.live(pick).name)
        self.live(pick).cleared()
        for ask in self.told[-2:]:
            self.check_held(self.live(pick), ask)

    # Touches

    @some_replicas
    @rule(pick=picks, ask=keyed_asks)
    def touch(self, pick: int, ask: Ask) -> None:
        if self.play("touch", self.at(pick).name, ask):
            self.model.touches.append(Attempt(self.at(pick), ask))

    @precondition(lambda self: self.model.touches)
    @rule(served=st.booleans())
    def touched(self, served: bool) -> None:
        self.play("touched", served, self.now)
        self.model.touches.pop(0).end(served)

    # The router itself

    @rule(luck=luck, policy=st.sampled_from(["affinity"] * 5 + list(POLICIES)), forward_unknown=st.booleans(),
          probe_failures=st.integers(1, 3), slow_start_s=st.sampled_from([0.0, 10.0]))  # fmt: skip
    def configure(
        self, luck: int, policy: str, forward_unknown: bool, probe_failures: int, slow_start_s: float
    ) -> None:
        if luck:
            return
        self.play("configure", policy, forward_unknown, probe_failures, slow_start_s)
        self.model.forward_unknown, self.model.probe_failures = forward_unknown, probe_failures

    @some_replicas
    @rule(pick=picks, ask=asks, slow_start_s=st.sampled_from([0.0, 1.0, 10.0]))
    def come_back_slowly(self, pick: int, ask: Ask, slow_start_s: float) -> None:
        """A replica comes back long after the fleet began, and its slow start is made shorter meanwhile."""
        self.probe(pick, "generated")
        self.now += 30.0
        self.probe(pick, "refused")
        self.probe(pick, "generated")
        self.configure(0, "affinity", self.model.forward_unknown, self.model.probe_failures, slow_start_s)
        self.route_to_replica(self.at(pick).name, ask)

    @rule(luck=luck)
    def restart(self, luck: int) -> None:
        if luck:
            return
        models = {name: tuple(sorted(replica.models)) for name, replica in self.model.replicas.items()}
        comparable = checks.is_roomy(self.player) and not any(r.live for r in self.model.replicas.values())
        known = self.play("restart", models, tuple(self.known[-4:]), self.now)
        for before, after in known if comparable else ():
            checks.check_decides_alike(before, after)
        self.model.restart()

    # What holds

    @invariant()
    def books_are_the_models(self) -> None:
        checks.check_books(self.model, self.player)
        self.sound = True

    @invariant()
    def memory_is_within_its_bounds(self) -> None:
        checks.check_memory(self.model, self.player)

    def teardown(self) -> None:
        if self.sound:  # one failure is enough
            self.end()

    def end(self) -> None:
        """Let everything end: the counts are zero, the same comes out again, and replicas leave nothing behind."""
        for number in list(self.model.open):
            self.play("settle", number, str(OutcomeKind.CLIENT_LEFT), 200, Usage(), None, self.now)
        for number in sorted(self.model.waiting):
            self.play("leave", number)
        for router in list(self.model.peers):
            self.play("hear", router, Said(leaving=True), self.now)
        while self.model.touches:
            self.touched(served=True)
        checks.check_nothing_under_way(self.player)
        for name in self.model.replicas:
            self.play("remove", name, self.now)
        checks.check_nothing_left(self.player)
        history = History(self.player.start, self.calls, self.answers.hexdigest())
        assert digest_of(history.start, history.calls) == history.digest
        self.played.append(history)
        del self.played[:-MOST_KEPT]


class Large(Everything):
    """A fleet of which only a few are looked at for each request."""

    least_replicas = 47


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("machine", "examples"), [(Everything, 120), (Large, 30)])
def test_any_history_is_as_the_model_says_and_the_same_whoever_plays_it(
    machine: type[Everything], examples: int
) -> None:
    played: list[History] = []
    run_state_machine_as_test(partial(machine, played), settings=runs(examples, steps=50))  # type: ignore[arg-type]
    assert played
    for seed in ("1", "2"):
        assert played_elsewhere(played, seed) == [history.digest for history in played]


def played_elsewhere(histories: list[History], hash_seed: str) -> list[str]:
    """Play histories in another process, in which sets and dicts of strings have another order."""
    said = subprocess.run(
        [sys.executable, "-m", "tests.properties.fleet_player"],
        input=msgspec.msgpack.encode(histories),
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    return msgspec.msgpack.decode(said.stdout, type=list[str])
