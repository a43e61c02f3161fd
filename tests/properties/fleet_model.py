"""A simple model of a fleet: who is in, who may be asked, what runs where, and what was ever sent there.

It is written from the documentation and not from the code, and knows nothing of prices: it says which decisions are
allowed and what the counts have to be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from router.core.types import EngineReport, OutcomeKind
from tests.properties.fleet_asks import ENGINE_BLOCK_TOKENS, Ask, engine_blocks, prompt_of, request_of, token_ids_of
from tests.properties.fleet_player import Said

NEVER = float("-inf")
TAKING = frozenset({"joining", "ready", "suspect"})


def backoff_s(failures: int) -> float:
    """Return the seconds until the trial after so many failures: half a second, doubled each time, ten at the most."""
    return min(10.0, 0.5 * 2.0 ** (failures - 1)) if failures else 0.5


class ModelReplica:
    """One replica: what was told of it, and what it was sent."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.models: frozenset[str] = frozenset()
        self.state = "joining"
        self.asleep = False
        self.cause: str | None = None
        self.failures = self.missed = 0
        self.on_trial = False
        self.retry_at_s = NEVER
        self.start_s: float | None = None
        self.queries: float | None = None
        self.computed: set[int] = set()
        """Blocks that have been computed here, by all that was heard, since the engine's last known restart."""
        self.forgetful = False
        """Whether anything may have been evicted, so that what was computed need not be known to be here."""
        self.peer_load: tuple[int, ...] = (0, 0, 0)
        self.live = False
        self.copies: Counter[tuple[int, str]] = Counter()
        """Copies that the engine itself has told of, by its hash of the block and the medium."""

    # Health

    @property
    def up(self) -> bool:
        return self.state in TAKING

    def available(self, now: float) -> bool:
        return self.up or (self.state == "ejected" and now >= self.retry_at_s)

    def serves(self, model: str) -> bool:
        return not self.models or not model or model in self.models

    def _move(self, state: str) -> None:
        self.state, self.on_trial = state, False

    def _out(self, now: float) -> None:
        """Count a failure that ejects, or that a trial ended with; what fails together is one failure."""
        if self.state == "draining":
            return
        if self.up:
            self._move("ejected")
        elif not self.on_trial and now < self.retry_at_s:
            return
        self.failures += 1
        self.on_trial = False
        self.retry_at_s = now + backoff_s(self.failures)

    def tried(self, now: float) -> None:
        if not self.up:
            self.on_trial = True
            self.retry_at_s = now + backoff_s(self.failures)

    def answered(self) -> None:
        self.cause = None
        self.failures = self.missed = 0
        if self.state != "draining":
            self._move("ready")

    def failed(self, cause: str, now: float) -> None:
        self.cause = cause
        self._out(now)

    def probed(self, answer: str, allowed_failures: int, now: float) -> None:
        if answer == "generated":
            self.answered()
        elif answer == "refused":
            self.failed("refused", now)
        elif answer == "good":
            self.missed = 0
            if self.cause in (None, "refused", "probes"):
                self.answered()
        else:
            self._missed_probe(allowed_failures, now)

    def _missed_probe(self, allowed_failures: int, now: float) -> None:
        self.missed += 1
        self.cause = "probes"
        if self.state in ("ready", "suspect") and self.missed < allowed_failures:
            self._move("suspect")
        else:
            self._out(now)

    def silent_trial(self, now: float) -> None:
        """Take in that a request was given up for silence, where it may have been the trial."""
        if not self.up:
            self.cause = "silence"
            self._out(now)

    def drain(self) -> None:
        if self.state != "draining":
            self._move("draining")

    def undrain(self) -> None:
        self.failures = self.missed = 0
        self.cause = None
        self._move("joining")

    # The engine

    def read(self, report: EngineReport) -> bool:
        """Take in a reading; return whether it is of another process than the one before."""
        other = None not in (report.start_time_s, self.start_s) and report.start_time_s != self.start_s
        fewer = None not in (report.prefix_queries_tokens, self.queries)
        fewer = fewer and report.prefix_queries_tokens < self.queries  # type: ignore[operator]
        self.start_s = self.start_s if report.start_time_s is None else report.start_time_s
        self.queries = self.queries if report.prefix_queries_tokens is None else report.prefix_queries_tokens
        self.asleep = bool(report.asleep)
        self.forgetful = self.forgetful or report.kv_tokens is not None
        if other or fewer:
            self._restarted()
        return other or fewer

    def _restarted(self) -> None:
        if self.state in ("suspect", "ejected"):
            self.cause = None
            self.failures = self.missed = 0
            self._move("joining")

    def silence(self, state: str, cause: str | None, failures: int, retry_at_s: float) -> None:
        """Take over how it was judged by its silence, which depends on times that no model has."""
        if state != self.state:
            self._move(state)
        if failures != self.failures:
            self.on_trial = False
        self.cause, self.failures, self.retry_at_s = cause, failures, retry_at_s

    def leading(self, blocks: list[int]) -> int:
        """Return how many leading blocks the engine has somewhere, by its own word."""
        held = {block for block, _ in +self.copies}
        return next((index for index, block in enumerate(blocks) if block not in held), len(blocks))

    def stored(self, blocks: list[int], medium: str) -> None:
        """Take in an event. The GPU may have a block twice, if two requests computed it at the same time."""
        for block in blocks:
            self.copies[block, medium] = self.copies[block, medium] + 1 if medium == "gpu" else 1

    def gone(self, blocks: list[int], medium: str) -> None:
        for block in blocks:
            self.copies[block, medium] = max(0, self.copies[block, medium] - 1)

    def cleared(self) -> None:
        """Take in that the GPU's cache is empty: other media keep what they have."""
        for block, medium in list(self.copies):
            if medium == "gpu":
                del self.copies[block, medium]

    @property
    def told_blocks(self) -> int:
        return len({block for block, _ in +self.copies})

    def told_tokens(self, ask: Ask) -> tuple[int, int]:
        """Return how many tokens of a prompt the engine has said that it can take from caches, and from slower ones.

        Never the prompt's last token. First what the GPU has, then what a slower medium has from there on.
        """
        count = far = 0
        for block in engine_blocks(ask)[: (len(token_ids_of(ask)) - 1) // ENGINE_BLOCK_TOKENS]:
            near, other = self.copies[block, "gpu"], self.copies[block, "cpu"] or self.copies[block, "disk"]
            if not other and (far or not near):
                break
            far += bool(far or not near)
            count += 1
        return count * ENGINE_BLOCK_TOKENS, far * ENGINE_BLOCK_TOKENS


class Allowed(NamedTuple):
    """Who may be chosen."""

    candidates: frozenset[str]
    pinned: str | None = None
    """Who has to be, if a candidate."""
    last_resort: bool = False
    """None of them is fit."""


class Attempt:
    """One attempt that is under way: here, at another router, or a touch."""

    def __init__(
        self, replica: ModelReplica, ask: Ask, uncached_tokens: int = 0, prompt_tokens: int = 0, now: float = 0.0
    ) -> None:
        self.replica = replica
        self.ask = ask
        self.uncached_tokens = uncached_tokens
        self.prompt_tokens = prompt_tokens
        self.sent_s = now
        self.begun = False
        prompt = prompt_of(ask)
        self.blocks: list[int] = [] if prompt is None else prompt.hashes
        ends = [] if prompt is None else prompt.ends_bytes
        self.sizes_bytes = {b: end - start for b, end, start in zip(self.blocks, ends, [0, *ends], strict=False)}
        self.stale = False
        """Whether the engine has lost everything since it was sent."""

    def end(self, computed: bool) -> None:
        if computed and not self.stale:
            self.replica.computed.update(self.blocks)


class Model:
    """The fleet as a whole."""

    def __init__(self, names: Iterable[str]) -> None:
        self.replicas = {name: ModelReplica(name) for name in names}
        self.forward_unknown = False
        self.probe_failures = 3
        self.open: dict[int, Attempt] = {}
        self.touches: list[Attempt] = []
        self.peers: dict[str, dict[int, Attempt]] = {}
        self.peer_loads: dict[str, dict[str, tuple[int, int, int]]] = {}
        self.heard_s: dict[str, float] = {}
        self.last_sent: dict[str, int] = {}
        """Number of the last attempt that each other router has told of: they grow, and what comes again is no news."""
        self.homes: dict[int, str] = {}
        self.waiting: set[int] = set()

    def add(self, name: str) -> None:
        self.replicas.setdefault(name, ModelReplica(name))

    def attempts(self) -> list[Attempt]:
        peers = [attempt for peer in self.peers.values() for attempt in peer.values()]
        return [*self.open.values(), *self.touches, *peers]

    def on(self, replica: ModelReplica) -> list[Attempt]:
        """Return what this router has under way on a replica."""
        return [attempt for attempt in self.open.values() if attempt.replica is replica]

    def emptied(self, replica: ModelReplica) -> None:
        replica.computed.clear()
        for attempt in self.attempts():
            attempt.stale = attempt.stale or attempt.replica is replica

    def restart(self) -> None:
        """Go on as a router that was started again: what runs is none of its own, what was learnt is kept."""
        before = self.replicas
        self.replicas = {name: ModelReplica(name) for name in before}
        for name, replica in self.replicas.items():
            old = before[name]
            replica.models, replica.start_s, replica.queries = old.models, old.start_s, old.queries
            replica.computed, replica.forgetful = self.present(old), old.forgetful
        self.homes = {key: name for key, name in self.homes.items() if name in self.replicas}
        self.open, self.touches, self.peers, self.peer_loads = {}, [], {}, {}
        self.heard_s.clear()
        self.last_sent.clear()
        self.waiting.clear()

    # Other routers

    def hear(self, router: str, said: Said, now: float) -> None:
        """Take in what another router says."""
        if said.leaving:
            self.forget_router(router)
            return
        self.heard_s[router] = now
        peer, loads = self.peers.setdefault(router, {}), self.peer_loads.setdefault(router, {})
        for number, ask, name in said.sent:
            if name in self.replicas and number > self.last_sent.get(router, 0):
                self.last_sent[router] = number
                peer[number] = self._sent_there(ask, self.replicas[name])
        for number, computed, _ in said.ended:
            if number in peer:
                peer.pop(number).end(computed)
        for number in [number for number in peer if number < said.oldest_open]:
            peer.pop(number).end(computed=True)
        changed = (set(loads) if said.whole else set()) | {name for name, _ in said.loads}
        if said.whole:
            loads.clear()
        loads.update(said.loads)
        self._sum_up(changed)

    def _sent_there(self, ask: Ask, replica: ModelReplica) -> Attempt:
        session = request_of(ask).session
        if session is not None:
            self.homes[session] = replica.name
        return Attempt(replica, ask)

    def forget_router(self, router: str) -> None:
        """Take what a router had under way for done: it has left, or fallen silent."""
        self.heard_s.pop(router, None)
        self.last_sent.pop(router, None)
        for attempt in self.peers.pop(router, {}).values():
            attempt.end(computed=True)
        self._sum_up(set(self.peer_loads.pop(router, {})))

    def _sum_up(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self.replicas:
                rows = [loads.get(name, (0, 0, 0)) for loads in self.peer_loads.values()]
                self.replicas[name].peer_load = tuple(map(sum, zip((0, 0, 0), *rows, strict=True)))

    # What may be known

    def present(self, replica: ModelReplica) -> set[int]:
        """Return all blocks that a replica may be believed to hold."""
        running = [a.blocks for a in self.attempts() if a.replica is replica and not a.stale]
        return replica.computed.union(*running)

    # Who may be asked

    def fit(self, model: str, now: float) -> list[str]:
        return [
            name for name, replica in self.replicas.items()
            if replica.available(now) and not replica.asleep and replica.serves(model)
        ]  # fmt: skip

    def allowed(self, ask: Ask, stored_at: str | None, excluded: Iterable[str], now: float) -> Allowed | str:
        """Return who may be chosen, or the name of the error that has to come."""
        out = set(excluded)
        fit = set(self.fit(ask.model, now)) - out
        pinned = self.replicas.get(stored_at or "")
        if pinned is not None and pinned.state == "draining" and not out:
            fit.add(pinned.name)
        if fit:
            return Allowed(frozenset(fit), stored_at)
        serving = [replica for replica in self.replicas.values() if replica.serves(ask.model)]
        if self.replicas and not serving:
            return self._unknown(stored_at, out, now)
        return self._last_resort([replica for replica in serving if replica.name not in out], stored_at)

    def _unknown(self, stored_at: str | None, out: set[str], now: float) -> Allowed | str:
        """Return who may be asked for a model that none is known to serve."""
        if not self.forward_unknown:
            return "UnknownModelError"
        fit = frozenset(self.fit("", now)) - out
        if fit:
            return Allowed(fit, stored_at)
        return self._last_resort([r for r in self.replicas.values() if r.name not in out], stored_at)

    def _last_resort(self, left: list[ModelReplica], stored_at: str | None) -> Allowed | str:
        """Rather one that drains and is well, then one that is awake, then any."""
        awake = [replica for replica in left if not replica.asleep]
        draining = [replica for replica in awake if replica.state == "draining" and replica.cause is None]
        names = frozenset(replica.name for replica in draining or awake or left)
        return Allowed(names, stored_at, last_resort=True) if names else "NoReplicaError"

    def ended(self, number: int, kind: OutcomeKind, served: bool, now: float) -> None:
        """Take in the end of an attempt of this router."""
        attempt = self.open.pop(number)
        attempt.end(attempt.begun or served)
        replica = attempt.replica
        if kind in (OutcomeKind.REFUSED, OutcomeKind.RESET, OutcomeKind.DIED):
            replica.failed(str(kind), now)
        elif kind is OutcomeKind.SILENT:
            replica.silent_trial(now)
        elif kind is OutcomeKind.COMPLETED and (replica.state != "ready" or replica.cause is not None):
            replica.answered()
