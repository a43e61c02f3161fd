"""Who asks what: recorded requests, by their time stamps or each session in closed loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Protocol

from xxhash import xxh3_64_intdigest

from router.core.types import Prompt, RoutingRequest
from router.replay.traces.types import TraceRequest
from router.sim.types import SimRequest

BYTES_PER_TOKEN = 4
"""Canonical bytes that a recorded token counts for: the usual length of a token of English, and what the router starts
from."""

SALT_STEP = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio: small identities that are next to each other do not meet."""

SEED_STEP_S = 300.0
"""How much later in a trace each seed begins: far enough that its requests are others'."""

MODEL = "m"
"""The one model that all ask for."""

_MASK_64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Job:
    """One request, as the router sees it and as an engine does."""

    think_s: float
    """Seconds after the answer before."""
    request: RoutingRequest
    simulated: SimRequest
    session: int | None = None
    """Hash of the conversation, where a client could name it; for policies that ask for a session hint."""
    bytes_per_token: float = BYTES_PER_TOKEN
    """Canonical bytes of the router's prompt for each token; for oracles."""

    @property
    def prompt_tokens(self) -> int:
        return len(self.simulated.token_ids)


class Client(Protocol):
    """A user or an agent: one request after the other, each after the answer to the one before."""

    starts_s: float
    number: int

    def next_job(self) -> Job | None:
        """Return the next request; None after the last one."""


class Workload(Protocol):
    """What a run's clients are made from: the same seed, the same clients."""

    @property
    def name(self) -> str: ...

    @property
    def block_tokens(self) -> int:
        """Tokens of an engine's block."""

    @property
    def duration_s(self) -> float:
        """When the last client comes; infinite where they never leave."""

    def clients(self, seed: int) -> Sequence[Client]: ...


class Record(NamedTuple):
    """One recorded request in the hands of a client."""

    think_s: float
    recorded: TraceRequest
    salt: int


class Once:
    """A client with one request."""

    def __init__(self, number: int, starts_s: float, recorded: TraceRequest, batch: bool = False) -> None:
        self.number, self.starts_s, self.batch = number, starts_s, batch
        self._records = iter([Record(0.0, recorded, 0)])

    def next_record(self) -> Record | None:
        return next(self._records, None)

    def next_job(self) -> Job | None:
        record = self.next_record()
        return record and job_of(record, str(self.number), self.batch, session_of(record.recorded))


class Conversation:
    """A recorded session once, each request one recorded think time after the answer before."""

    def __init__(self, number: int, starts_s: float, recorded: Sequence[TraceRequest], batch: bool = False) -> None:
        self.number, self.starts_s, self.batch = number, starts_s, batch
        self._records = _with_think_times(recorded)
        self._taken = 0

    def next_job(self) -> Job | None:
        record = next(self._records, None)
        if record is None:
            return None
        self._taken += 1
        session = session_of(record.recorded) or self.number
        return job_of(record, f"{self.number}/{self._taken}", self.batch, session)


def _with_think_times(recorded: Sequence[TraceRequest]) -> Iterator[Record]:
    """Where a trace tells no think time, all that lies between two arrivals is taken for it: a client that is slow."""
    before_s = recorded[0].arrives_s if recorded else 0.0
    for number, one in enumerate(recorded):
        think_s = max(0.0, one.arrives_s - before_s) if one.think_s is None else one.think_s
        yield Record(think_s if number else 0.0, one, 0)
        before_s = one.arrives_s


class Recorded:
    """Recorded sessions one after the other, from the middle of the first one on; no end."""

    def __init__(
        self, number: int, starts_s: float, sessions: Sequence[Sequence[TraceRequest]], batch: bool = False
    ) -> None:
        self.number, self.starts_s, self.batch = number, starts_s, batch
        self._sessions = sessions
        self._chance = Random(number)
        self._taken = self._begun = 0
        self._session = self._chance.choices(sessions, [len(session) for session in sessions])[0]
        self._at = self._chance.randrange(len(self._session))

    def next_record(self) -> Record:
        """Return the next one. The salt is the client's own: two in the same recorded session share nothing."""
        record = self._session[self._at]
        think_s = (record.think_s or 0.0) if self._taken else 0.0
        self._taken += 1
        self._at += 1
        if self._at == len(self._session):
            self._session, self._at = self._chance.choice(self._sessions), 0
            self._begun += 1
        return Record(think_s, record, self.number + 1)

    def next_job(self) -> Job:
        session = xxh3_64_intdigest(f"{self.number} {self._begun}".encode())
        return job_of(self.next_record(), f"agent {self.number} {self._taken}", self.batch, session)


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """A trace by its time stamps, `rate_scale` times as fast. Seed 1 begins with it, the next ones later in it."""

    name: str
    requests: Sequence[TraceRequest]
    """In order of arrival; at least one."""
    rate_scale: float = 1.0
    batch_ratio: float = 0.0
    """Share of the clients that nobody waits for."""

    @property
    def block_tokens(self) -> int:
        return self.requests[0].block_tokens

    @property
    def duration_s(self) -> float:
        return self.requests[-1].arrives_s / self.rate_scale

    def clients(self, seed: int) -> list[Once]:
        chance = Random(seed)
        skipped_s = (seed - 1) * SEED_STEP_S % max(SEED_STEP_S, self.requests[-1].arrives_s)
        return [
            Once(number, (one.arrives_s - skipped_s) / self.rate_scale, one, chance.random() < self.batch_ratio)
            for number, one in enumerate(self.requests)
            if one.arrives_s >= skipped_s
        ]


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Recorded sessions, each once, by their starts; later requests come by their think times."""

    name: str
    sessions: Sequence[Sequence[TraceRequest]]
    """None is empty."""
    rate_scale: float = 1.0
    """Of the starts; think times stay."""
    batch_ratio: float = 0.0

    @property
    def block_tokens(self) -> int:
        return self.sessions[0][0].block_tokens

    @property
    def duration_s(self) -> float:
        return max(session[0].arrives_s for session in self.sessions) / self.rate_scale

    def clients(self, seed: int) -> list[Conversation]:
        """Return them; seeds differ in who is batch only."""
        chance = Random(seed)
        return [
            Conversation(number, session[0].arrives_s / self.rate_scale, session, chance.random() < self.batch_ratio)
            for number, session in enumerate(self.sessions)
        ]


@dataclass(frozen=True, slots=True)
class Agents:
    """`live` agents at once, each in recorded sessions from a random point on; an ended session is replaced.

    Their first requests are spread over `spread_s`: all come cold.
    """

    name: str
    sessions: Sequence[Sequence[TraceRequest]]
    live: int
    spread_s: float
    most_tokens: int
    """Longer prompts are left out: the longest recorded ones are for engines larger than some here."""
    batch_ratio: float = 0.0

    @property
    def block_tokens(self) -> int:
        return self.sessions[0][0].block_tokens

    @property
    def duration_s(self) -> float:
        return float("inf")

    def clients(self, seed: int) -> list[Recorded]:
        sessions = [[one for one in s if one.prompt_tokens < self.most_tokens] for s in self.sessions]
        sessions = [session for session in sessions if session]
        chance = Random(seed)
        return [
            Recorded(seed * 100_000 + n, chance.uniform(0, self.spread_s), sessions, chance.random() < self.batch_ratio)
            for n in range(self.live)
        ]


def session_of(recorded: TraceRequest) -> int | None:
    """Return the hash of the session's name; None where the trace names none."""
    return xxh3_64_intdigest(recorded.session_id.encode()) if recorded.session_id else None


def job_of(record: Record, name: str, batch: bool = False, session: int | None = None) -> Job:
    """Return a recorded request as router and engines take it; `name` is unique within the run."""
    recorded = record.recorded
    hashes = _salted(recorded.block_hashes, record.salt)
    body_bytes = recorded.prompt_tokens * BYTES_PER_TOKEN
    request = RoutingRequest(MODEL, "chat", _prompt_of(record, hashes), body_bytes, streaming=True, batch=batch)
    simulated = SimRequest.from_block_hashes(name, hashes, recorded.prompt_tokens, max(1, recorded.output_tokens))
    simulated.finish_reason = recorded.finish_reason
    return Job(record.think_s, request, simulated, session)


def _prompt_of(record: Record, engine_hashes: list[int]) -> Prompt | None:
    """Return the prompt as the router hashed it; where that was not recorded, by the engine's blocks."""
    recorded = record.recorded
    if recorded.prompt_hashes:
        ends_bytes = [tokens * BYTES_PER_TOKEN for tokens in recorded.prompt_ends_tokens]
        return Prompt(_salted(recorded.prompt_hashes, record.salt), ends_bytes, [], None)
    return prompt_of(engine_hashes[: recorded.prompt_tokens // recorded.block_tokens], recorded.block_tokens)


def _salted(hashes: Iterable[int], salt: int) -> list[int]:
    shift = salt * SALT_STEP
    return [(known + shift) & _MASK_64 for known in hashes]


def prompt_of(hashes: list[int], block_tokens: int) -> Prompt | None:
    """Return a trace's blocks as the router's: whole ones only, so a prompt's end counts as its last one's."""
    size = block_tokens * BYTES_PER_TOKEN
    return Prompt(hashes, list(range(size, size * len(hashes) + 1, size)), [], None) if hashes else None
