"""Who asks what in holding.py: generated chats, recorded coding agents in closed loop, a recorded open loop."""

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple, Protocol

from xxhash import xxh3_64_intdigest

from router.core.prompt import PromptBuilder, scope_hash
from router.core.types import Prompt, RoutingRequest
from router.replay.traces.coding import read_coding_sessions
from router.replay.traces.mooncake import MOONCAKE_BLOCK_TOKENS, read_mooncake
from router.replay.traces.types import TraceRequest
from router.sim.tokenizer import Tokenizer, answer_text
from router.sim.types import EngineConfig, SimRequest
from router.sim.workload import ChatSession, ChatWorkload

CODING_BLOCK_TOKENS = 64
BYTES_PER_TOKEN = 4
NO_INTERVAL = 1 << 20  # only the first token and the end are told
SALT_STEP = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: small ids that are next to each other do not meet
SCOPE = scope_hash("m", "")


@dataclass(frozen=True, slots=True)
class Job:
    """One request, as the router sees it and as an engine does."""

    think_s: float
    """Seconds after the answer before."""
    request: RoutingRequest
    simulated: SimRequest


class Record(NamedTuple):
    """One recorded request in the hands of a client."""

    think_s: float
    recorded: TraceRequest
    salt: int


class Client(Protocol):
    """A user or an agent: one request after the other, each after the answer to the one before."""

    starts_s: float
    number: int

    def next_job(self) -> Job | None:
        """The next request; None after the last one."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A workload: its clients, and the engines that it is made for."""

    clients: Sequence[Client]
    engine: EngineConfig


class Chatter:
    """One generated chat."""

    def __init__(self, session: ChatSession, number: int, tokenizer: Tokenizer, batch: bool) -> None:
        self.session, self.number, self.tokenizer, self.batch = session, number, tokenizer, batch
        self.starts_s = session.starts_s
        self.answer: str | None = None

    def next_job(self) -> Job | None:
        turn = self.session.next_turn(self.answer)
        if turn is None:
            return None
        builder = PromptBuilder(SCOPE)
        for message in turn.messages:
            builder.add(message["role"].encode(), message["content"].encode())
        name = f"{turn.session_id}/{turn.number}"
        self.answer = answer_text(xxh3_64_intdigest(name.encode()), turn.max_tokens)
        ids = self.tokenizer.render_chat(turn.messages)
        body_bytes = sum(len(message["content"]) + 40 for message in turn.messages)
        request = RoutingRequest("m", "chat", builder.build(), body_bytes, True, batch=self.batch)
        return Job(turn.think_s, request, SimRequest(name, ids, self.tokenizer.encode(self.answer)))


def chats(sessions_per_s: float, duration_s: float, seed: int, batch_ratio: float, kv_tokens: int) -> Demand:
    chance, tokenizer = Random(seed), Tokenizer()
    sessions = ChatWorkload(sessions_per_s, duration_s, seed).sessions()
    clients = [
        Chatter(session, number, tokenizer, chance.random() < batch_ratio) for number, session in enumerate(sessions)
    ]
    return Demand(clients, EngineConfig(kv_tokens=kv_tokens, stream_interval=NO_INTERVAL))


class Recorded:
    """Recorded sessions one after the other, from the middle of the first one on; no end."""

    def __init__(self, number: int, starts_s: float, sessions: Sequence[list[TraceRequest]], batch: bool) -> None:
        self.number, self.starts_s, self.batch = number, starts_s, batch
        self.sessions = sessions
        self.chance = Random(number)
        self.taken = 0
        self.session = self.chance.choices(sessions, [len(session) for session in sessions])[0]
        self.at = self.chance.randrange(len(self.session))

    def next_record(self) -> Record:
        """The salt is the client's own: two of them in the same recorded session share nothing."""
        record = self.session[self.at]
        think_s = (record.think_s or 0.0) if self.taken else 0.0
        self.taken += 1
        self.at += 1
        if self.at == len(self.session):
            self.session, self.at = self.chance.choice(self.sessions), 0
        return Record(think_s, record, self.number + 1)

    def next_job(self) -> Job:
        return job_of(self.next_record(), f"agent {self.number} {self.taken}", self.batch)


class Once:
    """A client with one request."""

    def __init__(self, number: int, starts_s: float, recorded: TraceRequest, batch: bool) -> None:
        self.number, self.starts_s, self.batch = number, starts_s, batch
        self.records = iter([Record(0.0, recorded, 0)])

    def next_record(self) -> Record | None:
        return next(self.records, None)

    def next_job(self) -> Job | None:
        record = self.next_record()
        return record and job_of(record, str(self.number), self.batch)


def agent_clients(
    trace: Path, live: int, seed: int, batch_ratio: float, kv_tokens: int, warm_up_s: float
) -> list[Recorded]:
    """`live` agents at once. Their first requests are spread over the warm-up: all come cold."""
    with gzip.open(trace, "rt") as lines:
        # No request takes more than half a cache: the longest recorded ones are for engines larger than some here.
        sessions = [[one for one in s if one.prompt_tokens < kv_tokens // 2] for s in read_coding_sessions(lines)]
    sessions = [session for session in sessions if session]
    chance = Random(seed)
    return [
        Recorded(seed * 100_000 + n, chance.uniform(0, warm_up_s), sessions, chance.random() < batch_ratio)
        for n in range(live)
    ]


def open_clients(trace: Path, speed: float, duration_s: float, seed: int, batch_ratio: float) -> list[Once]:
    """A trace by its time stamps, `speed` times as fast. Seed 1 begins with the trace, the next ones later in it."""
    chance = Random(seed)
    with gzip.open(trace, "rt") as lines:
        recorded = list(read_mooncake(lines))
    skipped_s = (seed - 1) * 300.0
    return [
        Once(number, (one.arrives_s - skipped_s) / speed, one, chance.random() < batch_ratio)
        for number, one in enumerate(recorded)
        if skipped_s <= one.arrives_s < skipped_s + duration_s * speed
    ]


def coding_agents(
    trace: Path, live: int, seed: int, batch_ratio: float, kv_tokens: int, warm_up_s: float
) -> Demand:
    engine = EngineConfig(kv_tokens=kv_tokens, block_tokens=CODING_BLOCK_TOKENS, stream_interval=NO_INTERVAL)
    return Demand(agent_clients(trace, live, seed, batch_ratio, kv_tokens, warm_up_s), engine)


def open_loop(trace: Path, speed: float, duration_s: float, seed: int, batch_ratio: float, kv_tokens: int) -> Demand:
    engine = EngineConfig(kv_tokens=kv_tokens, block_tokens=MOONCAKE_BLOCK_TOKENS, stream_interval=NO_INTERVAL)
    return Demand(open_clients(trace, speed, duration_s, seed, batch_ratio), engine)


def job_of(record: Record, name: str, batch: bool) -> Job:
    recorded = record.recorded
    hashes = [(block + record.salt * SALT_STEP) & (1 << 64) - 1 for block in recorded.block_hashes]
    prompt = prompt_of(hashes, recorded.block_tokens)
    request = RoutingRequest("m", "chat", prompt, recorded.prompt_tokens * BYTES_PER_TOKEN, True, batch=batch)
    simulated = SimRequest.from_block_hashes(name, hashes, recorded.prompt_tokens, max(1, recorded.output_tokens))
    simulated.finish_reason = recorded.finish_reason
    return Job(record.think_s, request, simulated)


def prompt_of(hashes: list[int], block_tokens: int) -> Prompt | None:
    """A trace's blocks as the router's: it names whole blocks only, so a prompt's end counts as its last one's."""
    size = block_tokens * BYTES_PER_TOKEN
    return Prompt(hashes, list(range(size, size * len(hashes) + 1, size)), [], None) if hashes else None
