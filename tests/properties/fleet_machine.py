"""Plays a fleet and its model side by side, a rule for each thing that can be asked of a fleet."""

from __future__ import annotations

import pickle
from typing import Any

import xxhash
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from router.core.residency import ENTRY_BYTES
from router.core.types import Decision, EngineReport, OutcomeKind, Usage
from tests.properties import fleet_checks as checks
from tests.properties.fleet_asks import Ask, prompt_of, request_of, token_ids_of
from tests.properties.fleet_model import Allowed, Attempt, Model, ModelReplica
from tests.properties.fleet_player import ROOMY_BYTES, Player, Sent, Start, packed

SMALL_BYTES = 120 * ENTRY_BYTES

picks = st.integers(0, 999)
luck = st.integers(0, 5)
"""What leaves little to be checked happens at 0 only."""

asks = st.builds(
    Ask,
    name=st.integers(0, 3),
    turns=st.integers(1, 4),
    model=st.sampled_from(["m"] * 5 + ["other", "strange", ""]),
    form=st.sampled_from(["chat"] * 4 + ["text", "text", "short", "unknown"]),
    streaming=st.booleans(),
    session=st.booleans(),
    stored=st.sampled_from([None, None, 0, 1]),
    tokens=st.booleans(),
    batch=st.booleans(),
)
keyed_asks = asks.filter(lambda ask: prompt_of(ask) is not None)

SERVED_ENDS = (OutcomeKind.CLIENT_LEFT, OutcomeKind.DIED)

some_replicas = precondition(lambda self: self.model.replicas)


class FleetMachine(RuleBasedStateMachine):
    """Replicas that come, go and fail, and requests that are sent to them."""

    least_replicas = 0

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.sound = False
        """Whether all that was played until now has been checked."""
        self.calls: list[bytes] = []
        self.answers = xxhash.xxh3_128()
        self.known: list[Ask] = []
        self.numbers = 0
        self.player, self.model = Player(Start(0, ROOMY_BYTES, 0)), Model([])

    @initialize(few=st.sampled_from([3, 2, 1, 0]), roomy=st.sampled_from([True, True, False]), seed=st.integers(0, 2))
    def begin(self, few: int, roomy: bool, seed: int) -> None:
        start = Start(self.least_replicas + few, ROOMY_BYTES if roomy else SMALL_BYTES, seed)
        self.player = Player(start)
        self.model = Model(replica.replica_id for replica in self.player.fleet)

    def play(self, name: str, *arguments: Any) -> Any:
        self.sound = False
        self.calls.append(pickle.dumps((name, arguments)))
        answer = self.player.play((name, arguments))
        self.answers.update(packed(answer))
        return answer

    def at(self, pick: int) -> ModelReplica:
        return list(self.model.replicas.values())[pick % len(self.model.replicas)]

    @rule(seconds=st.sampled_from([0.0, 0.1, 0.6, 3.0, 30.0]) | st.floats(0.0, 12.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    # Replicas

    @rule(number=st.integers(0, 7), luck=luck)
    def come_or_go(self, number: int, luck: int) -> None:
        name = f"r{number}"
        if name not in self.model.replicas:
            self.play("add", name)
            self.model.add(name)
        elif not luck:
            self.play("remove", name, self.now)
            del self.model.replicas[name]

    @precondition(lambda self: self.model.open)
    @rule(pick=picks, kind=st.sampled_from([OutcomeKind.COMPLETED, OutcomeKind.DIED]), back=st.booleans())
    def leave_under_way(self, pick: int, kind: OutcomeKind, back: bool) -> None:
        """A replica leaves, perhaps to come back with an empty cache, while a request runs there, which ends then."""
        name = self.attempt(pick)[1].replica.name
        if name in self.model.replicas:
            self.play("remove", name, self.now)
            del self.model.replicas[name]
        if back:
            self.play("add", name)
            self.model.add(name)
        self.settle(pick, kind, 200, None, None, None, None)

    @some_replicas
    @rule(pick=picks, what=st.sampled_from(["add again", "weigh", "chosen", "lose sight"]),
          weight=st.sampled_from([0.5, 1.0, 3.0]))  # fmt: skip
    def note(self, pick: int, what: str, weight: float) -> None:
        """What changes prices at most."""
        replica = self.at(pick)
        if what == "add again":
            self.play("add", replica.name)
        elif what == "weigh":
            self.play("weigh", replica.name, weight)
        elif what == "chosen":
            self.play("chosen", replica.name)
        else:
            self.play("lose_sight", replica.name)
            replica.asleep = False

    @some_replicas
    @rule(pick=picks, models=st.sampled_from([(), (), ("m",), ("other",), ("m", "other")]))
    def serve(self, pick: int, models: tuple[str, ...]) -> None:
        replica = self.at(pick)
        self.play("serve", replica.name, models)
        replica.models = frozenset(models)

    @some_replicas
    @rule(pick=picks)
    def drain_or_undrain(self, pick: int) -> None:
        replica = self.at(pick)
        if replica.state == "draining":
            self.play("undrain", replica.name, self.now)
            replica.undrain()
        else:
            self.play("drain", replica.name, self.now)
            replica.drain()

    @some_replicas
    @rule(pick=picks, answer=st.sampled_from(["good", "good", "refused", "bad", "generated"]))
    def probe(self, pick: int, answer: str) -> None:
        replica = self.at(pick)
        self.play("probe", replica.name, answer, self.now)
        replica.probed(answer, self.model.probe_failures, self.now)

    @some_replicas
    @rule(
        pick=picks,
        process=st.sampled_from([None, 1.0, 1.0, 1.0, 2.0]),
        queries=st.none() | st.integers(0, 3),
        kv_tokens=st.sampled_from([None, None, None, 600, 3_000]),
        waiting=st.none() | st.integers(0, 9),
        usage=st.sampled_from([None, 0.5, 1.0]),
        asleep=st.sampled_from([None, False, False, True]),
    )
    def read_metrics(
        self, pick: int, process: float | None, queries: int | None, kv_tokens: int | None, waiting: int | None,
        usage: float | None, asleep: bool | None,
    ) -> None:  # fmt: skip
        replica = self.at(pick)
        report = EngineReport(
            waiting=waiting, kv_usage_ratio=usage, kv_tokens=kv_tokens, asleep=asleep,
            start_time_s=None if process is None else process * 100.0, prefix_queries_tokens=queries,
        )  # fmt: skip
        restarted = self.play("read_metrics", replica.name, report, self.now)
        assert restarted == replica.read(report)
        if restarted:
            self.model.emptied(replica)

    @some_replicas
    @rule(pick=picks, luck=luck)
    def forget(self, pick: int, luck: int) -> None:
        if not luck:
            self.play("forget", self.at(pick).name)
            self.model.emptied(self.at(pick))

    @precondition(lambda self: self.model.open)
    @rule()
    def judge_silence(self) -> None:
        ejected, healths = self.play("judge_silence", self.now)
        for name, state, cause, failures, retry_at_s in healths:
            replica = self.model.replicas[name]
            before = replica.state, replica.cause, replica.failures, replica.retry_at_s
            assert (name in ejected) == (replica.up and state == "ejected")
            if before != (state, cause, failures, retry_at_s):
                assert cause == "silence"
                assert any(self.now - one.sent_s > 5.0 and not one.begun for one in self.model.on(replica))
                replica.silence(state, cause, failures, retry_at_s)

    # Requests

    def allowed(self, ask: Ask, excluded: tuple[str, ...] = ()) -> Allowed | str:
        stored = request_of(ask).stored
        stored_at = None if stored is None else self.model.homes.get(stored)
        return self.model.allowed(ask, stored_at, excluded, self.now)

    def check(self, ask: Ask, answer: Sent | Decision | str, allowed: Allowed | str) -> None:
        """Check an answer; where an attempt was begun, the model begins it too."""
        if isinstance(answer, str):
            assert answer == allowed
            return
        decision = answer.decision if isinstance(answer, Sent) else answer
        checks.check_decision(self.model, checks.is_roomy(self.player), ask, decision, allowed)
        if isinstance(answer, Sent):
            self.opened(answer)

    def opened(self, sent: Sent) -> None:
        decision = sent.decision
        replica = self.model.replicas[decision.replica]
        replica.tried(self.now)
        uncached = decision.prompt_tokens - decision.matched_tokens
        self.model.open[sent.number] = Attempt(replica, sent.ask, uncached, decision.prompt_tokens, self.now)
        self.known.append(sent.ask)

    @rule(ask=asks, excluded=st.lists(picks, max_size=2) | st.just([]))
    def route(self, ask: Ask, excluded: list[int]) -> None:
        names = tuple(self.at(pick).name for pick in excluded) if self.model.replicas else ()
        allowed = self.allowed(ask, names)
        self.check(ask, self.play("route", ask, names, self.now), allowed)

    @rule(pick=picks, streaming=st.booleans(), more=st.integers(0, 1))
    def route_next_turn(self, pick: int, streaming: bool, more: int) -> None:
        """Go on with a conversation that is known, as most do, or begin it once more."""
        if self.known:
            before = self.known[-1 - pick % len(self.known)]
            turns = min(5, before.turns + more)
            ask = Ask(before.name, turns, before.model, before.form, streaming, before.session, tokens=before.tokens)
            self.check(ask, self.play("route", ask, (), self.now), self.allowed(ask))

    @rule(pick=picks, streaming=st.booleans(), more=st.integers(0, 1), answer=st.none() | st.integers(0, 300))
    def have_a_turn(self, pick: int, streaming: bool, more: int, answer: int | None) -> None:
        """The same, and the whole answer."""
        before = len(self.model.open)
        self.route_next_turn(pick, streaming, more)
        if len(self.model.open) > before:
            self.first_byte(-1)
            self.settle(-1, OutcomeKind.COMPLETED, 200, "as believed", answer, "stop", None)

    @rule(ask=asks)
    def explain(self, ask: Ask) -> None:
        self.check(ask, self.play("explain", ask, self.now), self.allowed(ask))

    @rule(ask=asks, depth_s=st.sampled_from([0.0, 0.2, 5.0]))
    def route_within(self, ask: Ask, depth_s: float) -> None:
        allowed = self.allowed(ask)
        self.check(ask, self.play("route_within", ask, depth_s, self.now), allowed)

    @some_replicas
    @rule(pick=picks, ask=asks)
    def route_to(self, pick: int, ask: Ask) -> None:
        self.route_to_replica(self.at(pick).name, ask)

    def route_to_replica(self, name: str, ask: Ask) -> None:
        self.check(ask, self.play("route_to", name, ask, self.now), Allowed(frozenset({name})))

    def attempt(self, pick: int) -> tuple[int, Attempt]:
        return list(self.model.open.items())[pick % len(self.model.open)]

    @precondition(lambda self: self.model.open)
    @rule(pick=picks)
    def first_byte(self, pick: int) -> None:
        number, attempt = self.attempt(pick)
        self.play("first_byte", number, self.now)
        attempt.begun = True

    @precondition(lambda self: self.model.open)
    @rule(
        pick=picks,
        kind=st.sampled_from([OutcomeKind.COMPLETED] * 5 + list(OutcomeKind)),
        status=st.sampled_from([200, 200, 200, 400, 503]),
        cached=st.sampled_from([None, None, "as believed", "nothing"]),
        answer=st.none() | st.integers(0, 300),
        finish=st.sampled_from([None, "stop", "tool_calls"]),
        retry_after_s=st.none() | st.floats(0.0, 20.0),
    )
    def settle(
        self, pick: int, kind: OutcomeKind, status: int, cached: str | None, answer: int | None,
        finish: str | None, retry_after_s: float | None,
    ) -> None:  # fmt: skip
        number, attempt = self.attempt(pick)
        prompt_tokens = None if answer is None else len(token_ids_of(attempt.ask))
        believed = attempt.prompt_tokens - attempt.uncached_tokens if cached == "as believed" else 0
        usage = Usage(prompt_tokens, None if cached is None else believed, answer, finish)
        served = kind is OutcomeKind.COMPLETED or (attempt.begun and kind in SERVED_ENDS)
        served = served and status < 400
        said = self.play("settle", number, str(kind), status, usage, retry_after_s, self.now)
        assert said[:2] == (served, served or attempt.begun)
        surprised = cached == "nothing" or (cached is not None and attempt.replica.live)
        attempt.replica.forgetful = attempt.replica.forgetful or surprised
        self.model.ended(number, kind, served, self.now)
        session, replica = request_of(attempt.ask).session, attempt.replica
        if served and session is not None and self.model.replicas.get(replica.name) is replica:
            self.model.homes[session] = replica.name

    @precondition(lambda self: self.model.open)
    @rule(pick=picks)
    def settle_twice(self, pick: int) -> None:
        """A second end of one attempt is refused, whatever it says."""
        number, _ = self.attempt(pick)
        ticket = self.player.open[number]
        self.settle(pick, OutcomeKind.COMPLETED, 200, None, None, None, None)
        checks.check_closed(self.player, ticket, self.now)

    @rule(key=st.integers(0, 1), model=st.sampled_from(["m", "other"]), pick=picks)
    def store(self, key: int, model: str, pick: int) -> None:
        """A response is stored at a replica, as its answer has said."""
        stored = request_of(Ask(0, model=model, stored=key)).stored
        if self.model.replicas and stored is not None:
            self.play("home", stored, self.at(pick).name)
            self.model.homes[stored] = self.at(pick).name
