"""Plays a recorded history on a real fleet. Calls and answers are plain values, so any process can play them again.

As a program: reads histories from the standard input and writes a digest of each one's answers.
"""

from __future__ import annotations

import pickle
import sys
from array import array
from collections.abc import Iterator
from typing import Any

import msgspec
import xxhash

from router.core.admission import Admission, QueueFullError, Rules
from router.core.engine_cache.cache import EngineCache
from router.core.engine_cache.turns import turn_key
from router.core.engine_cache.types import Medium, Stored
from router.core.fleet import Fleet
from router.core.landmarks import Found, Holder, Recollection, question, recollect
from router.core.leases import Lease
from router.core.news import Bulletin, News, Opened, Settled
from router.core.peers import Peers
from router.core.policies import POLICIES
from router.core.policy import round_robin
from router.core.replica import Load
from router.core.residency import Mirror
from router.core.snapshot import Snapshot, restore, take
from router.core.ticket import Ticket
from router.core.token_ids import token_scope
from router.core.tokens import turn_links
from router.core.types import (
    Decision,
    EngineReport,
    NoReplicaError,
    Outcome,
    OutcomeKind,
    UnknownModelError,
    Usage,
)
from router.core.waiting import Waiting
from tests.properties.fleet_asks import ENGINE_BLOCK_TOKENS, Ask, engine_blocks, prompt_of, request_of, token_ids_of

Call = tuple[str, tuple[Any, ...]]
"""Name of a method of `Player` without `play_`, and its arguments."""

RULES = Rules(depth_s=0.5, max_wait_s=20.0, max_requests=12, max_bytes=40_000)

SPEED = 1_000.0
"""Prefill tokens a second that replicas are taken for at first: a few requests keep one busy, so that others wait."""

ROOMY_BYTES = 64 << 20

REFUSALS = (NoReplicaError, UnknownModelError)


class Start(msgspec.Struct, frozen=True, array_like=True):
    """What a world begins with."""

    replicas: int
    index_bytes: int
    tie_seed: int


class Sent(msgspec.Struct, frozen=True, array_like=True):
    """An attempt that was begun."""

    number: int
    ask: Ask
    decision: Decision


class Held(msgspec.Struct, frozen=True, array_like=True):
    """A request that waits."""

    number: int


class Said(msgspec.Struct, frozen=True, array_like=True):
    """What another router says of itself."""

    sent: tuple[tuple[int, Ask, str], ...] = ()
    """Attempts that it began: their numbers, requests and replicas."""
    ended: tuple[tuple[int, bool, int], ...] = ()
    """Attempts that have ended: their numbers, whether they were computed, the size of the answer in bytes."""
    loads: tuple[tuple[str, tuple[int, int, int]], ...] = ()
    whole: bool = True
    oldest_open: int = 0
    leaving: bool = False


class Player:
    """A fleet with its queue, what it hears of other routers, and the attempts that are under way."""

    def __init__(self, start: Start) -> None:
        self.start = start
        self.configuration: tuple[str, bool, int, float] = ("affinity", False, 3, 10.0)
        self._build()
        for number in range(start.replicas):
            self.fleet.add(f"r{number}")

    def _build(self) -> None:
        self.fleet = Fleet(POLICIES[self.configuration[0]], self.start.index_bytes, SPEED, self.start.tie_seed)
        self.admission = Admission(self.fleet, RULES)
        self.peers = Peers(self.fleet)
        self.open: dict[int, Ticket] = {}
        self.waiting: dict[int, Waiting] = {}
        self.asks: dict[int, Ask] = {}
        self.touches: list[tuple[Mirror, Lease]] = []
        self.engines: dict[str, EngineCache] = {}
        self._configure(*self.configuration)

    def play(self, call: Call) -> Any:
        """Make a call; return what it answered, or the name of what it raised."""
        try:
            return getattr(self, f"play_{call[0]}")(*call[1])
        except (*REFUSALS, QueueFullError) as error:
            return type(error).__name__

    # Replicas

    def play_add(self, name: str) -> None:
        self.fleet.add(name)

    def play_weigh(self, name: str, weight: float) -> None:
        self.fleet.weigh(name, weight)

    def play_remove(self, name: str, now: float) -> None:
        self.fleet.remove(name, now)
        self.engines.pop(name, None)

    def play_serve(self, name: str, models: tuple[str, ...]) -> None:
        self.fleet[name].models = frozenset(models)

    def play_drain(self, name: str, now: float) -> None:
        self.fleet[name].health.drain(now)

    def play_undrain(self, name: str, now: float) -> None:
        self.fleet[name].health.undrain(now)

    def play_probe(self, name: str, answer: str, now: float) -> None:
        """`answer`: `good`, `refused`, `bad`, or `generated`, which is a token and not only a good word."""
        health = self.fleet[name].health
        if answer == "good":
            health.probed(now)
        elif answer == "refused":
            health.failed(OutcomeKind.REFUSED, now)
        elif answer == "generated":
            health.succeeded(now)
        else:
            health.missed(now)

    def play_read_metrics(self, name: str, report: EngineReport, now: float) -> bool:
        return self.fleet.observe_engine(name, report, now)

    def play_lose_sight(self, name: str) -> None:
        self.fleet.lost_sight_of(name)

    def play_forget(self, name: str) -> None:
        self.fleet.forget_residency(name)

    def play_judge_silence(self, now: float) -> tuple[list[str], list[tuple[str, str, str | None, int, float]]]:
        """Return who is ejected by this call, and what is believed of the health of each by now."""
        ejected = [replica.replica_id for replica in self.fleet.judge_silence(now)]
        everyone = [(replica.replica_id, replica.health) for replica in self.fleet]
        return ejected, [(name, str(h.state), h.cause, h.failures, h.retry_at_s) for name, h in everyone]

    # Requests

    def play_explain(self, ask: Ask, now: float) -> Decision:
        return self.fleet.explain(request_of(ask), now)

    def play_route(self, ask: Ask, excluded: tuple[str, ...], now: float) -> Sent:
        return self._opened(ask, self.fleet.route(request_of(ask), now, excluded))

    def play_route_within(self, ask: Ask, depth_s: float, now: float) -> Sent | Decision:
        found = self.fleet.route_within(request_of(ask), now, depth_s)
        return self._opened(ask, found) if isinstance(found, Ticket) else found

    def play_route_to(self, name: str, ask: Ask, now: float) -> Sent:
        return self._opened(ask, self.fleet.route_to(name, request_of(ask), now))

    def play_chosen(self, name: str) -> None:
        self.fleet.count_chosen(self.fleet[name])

    def _opened(self, ask: Ask, ticket: Ticket) -> Sent:
        self.open[ticket.number] = ticket
        contents, prompt = ticket.replica.contents, ticket.request.prompt
        if contents is not None and prompt is not None:
            contents.turns.begin(turn_key(prompt), ticket.number, ticket.replica.ledger.streams == 1)
        return Sent(ticket.number, ask, ticket.decision)

    def play_first_byte(self, number: int, now: float) -> None:
        self.fleet.first_byte(self.open[number], now)

    def play_settle(
        self, number: int, kind: str, status: int, usage: Usage, retry_after_s: float | None, now: float
    ) -> tuple[object, ...]:
        outcome = Outcome(OutcomeKind(kind), status, usage, retry_after_s)
        return tuple(self.fleet.settle(self.open.pop(number), outcome, now))

    # The queue

    def play_admit(self, ask: Ask, tenant: int, now: float) -> Sent | Held:
        found = self.admission.route(request_of(ask), tenant, now)
        if isinstance(found, Ticket):
            return self._opened(ask, found)
        self.waiting[found.number], self.asks[found.number] = found, ask
        return Held(found.number)

    def play_tick(self, now: float) -> list[tuple[int, Sent]]:
        return self._sent(self.admission.tick(now))

    def play_reconsider(self, now: float) -> list[tuple[int, Sent]]:
        return self._sent(self.admission.reconsider(now))

    def play_released(self, name: str, now: float) -> list[tuple[int, Sent]]:
        return self._sent(self.admission.released(name, now))

    def _sent(self, sent: Iterator[tuple[Waiting, Ticket]]) -> list[tuple[int, Sent]]:
        """Note who is sent, by the numbers under which they waited."""
        found = []
        for waiting, ticket in sent:
            del self.waiting[waiting.number]
            found.append((waiting.number, self._opened(self.asks.pop(waiting.number), ticket)))
        return found

    def play_leave(self, number: int) -> None:
        del self.asks[number]
        self.admission.leave(self.waiting.pop(number))

    def play_turn_away(self, now: float) -> list[int]:
        """Let those go who have waited for too long, had to make room, or ask for what nobody serves any more."""
        gone = {waiting.number: waiting for waiting in (*self.admission.overdue(now), *self.admission.unserved())}
        for number in gone:
            self.play_leave(number)
        return list(gone)

    # Other routers

    def play_hear(self, router: str, said: Said, now: float) -> None:
        news: list[News] = [_news_of(number, ask, name) for number, ask, name in said.sent]
        news += [Settled(number, computed, False, answer_bytes, 4.0) for number, computed, answer_bytes in said.ended]
        loads = [(name, Load(*load)) for name, load in said.loads]
        self.peers.hear(router, Bulletin(said.oldest_open, said.whole, loads, news, said.leaving), now)

    def play_expire_peers(self, now: float) -> list[str]:
        return self.peers.expire(now)

    def play_recollect(self, ask: Ask, names: tuple[str, ...], home: str | None, now: float) -> int:
        """Take in what other routers know of a prompt: who holds its longest landmark, and a home of its session.

        Return the blocks up to that landmark; 0 where nobody is asked for any.
        """
        request = request_of(ask)
        asked = question(self.fleet, request)
        if asked is None:
            return 0
        holders = [Holder(name, None) for name in names]
        found = [Found(position, holders, 100, 10) for position in asked.positions[:1]]
        homes = [(key, home) for key in asked.homes if home is not None]
        recollect(self.fleet, asked, Recollection(found, homes), now)
        return asked.positions[0] if asked.positions else 0

    def play_home(self, key: int, name: str) -> None:
        self.fleet.index.homes.put(key, name)

    # Engines' own words

    def play_follow(self, name: str) -> None:
        """Believe an engine's events from now on."""
        self.fleet[name].contents = self.engines.setdefault(name, EngineCache())

    def play_lose_events(self, name: str) -> None:
        if name in self.engines:
            self.engines[name].forget()
        self.fleet[name].contents = None

    def play_stored(self, name: str, ask: Ask, start: int, stop: int, medium: str, label: int | None) -> None:
        ids, blocks = token_ids_of(ask).ids, engine_blocks(ask)
        parent = blocks[start - 1] if start else None
        tokens = ids[start * ENGINE_BLOCK_TOKENS : stop * ENGINE_BLOCK_TOKENS]
        scope = None if start else token_scope(None, None)
        event = Stored(blocks[start:stop], parent, tokens, ENGINE_BLOCK_TOKENS, scope, label=label)
        self.engines[name].stored(event, Medium(medium))

    def play_stored_behind_a_gap(self, name: str, key: int) -> None:
        ids = array("I", range(ENGINE_BLOCK_TOKENS))
        self.engines[name].stored(Stored([key], key + 1, ids, ENGINE_BLOCK_TOKENS, None))

    def play_gone(self, name: str, blocks: tuple[int, ...], medium: str) -> None:
        self.engines[name].removed(list(blocks), Medium(medium))

    def play_cleared(self, name: str) -> None:
        self.engines[name].cleared()

    def play_held(self, name: str, ask: Ask) -> tuple[int, int]:
        held = self.engines[name].held(token_ids_of(ask))
        return held.tokens, held.reloaded_tokens

    # Touches

    def play_touch(self, name: str, ask: Ask) -> bool:
        prompt, mirror = prompt_of(ask), self.fleet[name].mirror
        lease = None if prompt is None else self.fleet.index.hold(mirror, prompt)
        if lease is not None:
            self.touches.append((mirror, lease))
        return lease is not None

    def play_touched(self, served: bool, now: float) -> None:
        mirror, lease = self.touches.pop(0)
        self.fleet.index.release(mirror, lease, now, served)

    # The router itself

    def play_configure(self, *configuration: Any) -> None:
        self.configuration = configuration
        self._configure(*configuration)

    def _configure(self, policy: str, forward_unknown: bool, probe_failures: int, slow_start_s: float) -> None:
        self.fleet.policy, self.fleet.forward_unknown = POLICIES[policy], forward_unknown
        self.fleet.care.probe_failures, self.fleet.care.slow_start_s = probe_failures, slow_start_s

    def play_restart(self, models: dict[str, tuple[str, ...]], asks: tuple[Ask, ...], now: float) -> list[Any]:
        """Go on in a fleet that knows only what the snapshot of this one says, and what its configuration does.

        Return what either knows of some requests.
        """
        kept, before = msgspec.msgpack.encode(take(self.fleet, now)), [self._known(ask, now) for ask in asks]
        names = [replica.replica_id for replica in self.fleet]
        self._build()
        for name in names:
            self.fleet.add(name)
            self.fleet[name].models = frozenset(models[name])
        restore(self.fleet, msgspec.msgpack.decode(kept, type=Snapshot), now)
        return [(one, self._known(ask, now)) for ask, one in zip(asks, before, strict=True)]

    def _known(self, ask: Ask, now: float) -> tuple[object, ...] | None:
        """Return what is known of a request that outlasts a router: homes, and each candidate's match and speed."""
        self.fleet.policy = round_robin  # which prices all there are
        try:
            decision = self.fleet.explain(request_of(ask), now)
        except REFUSALS:
            return None
        finally:
            self.fleet.policy = POLICIES[self.configuration[0]]
        known = [(s.replica, s.matched_blocks, s.matched_tokens, s.own_s) for s in decision.scores]
        return decision.prompt_tokens, decision.home, known


def _news_of(number: int, ask: Ask, name: str) -> Opened:
    request, prompt = request_of(ask), prompt_of(ask)
    if prompt is None:
        return Opened(number, name, 100, session=request.session)
    hashes, ends = array("Q", prompt.hashes).tobytes(), array("I", prompt.ends_bytes).tobytes()
    return Opened(number, name, 100, hashes, ends, turn_links(prompt, 100, 0), request.session)


def packed(answer: Any) -> bytes:
    """Return an answer as bytes: equal ones are equal bytes, each float to its last bit."""
    return msgspec.msgpack.encode(answer)


class History(msgspec.Struct):
    """What was played, and a digest of all answers, score tables included."""

    start: Start
    calls: list[bytes]
    """Pickled: they are our own, and must come out as they went in."""
    digest: str = ""


def digest_of(start: Start, calls: list[bytes]) -> str:
    """Play pickled calls; return a digest of all answers."""
    player, digest = Player(start), xxhash.xxh3_128()
    for call in calls:
        digest.update(packed(player.play(pickle.loads(call))))
    return digest.hexdigest()


def main() -> None:
    """Play what the standard input has, and write the digests."""
    histories = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=list[History])
    sys.stdout.buffer.write(msgspec.msgpack.encode([digest_of(each.start, each.calls) for each in histories]))


if __name__ == "__main__":
    main()
