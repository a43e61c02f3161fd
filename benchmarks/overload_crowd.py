"""The clients of overload.py: one request after the other, each with a priority; a refused one comes again."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.chats import read_events
from benchmarks.holding_demand import coding_agents, open_loop
from benchmarks.load import post
from benchmarks.paced import Paced
from router.replay.demand import Once, Recorded
from router.replay.traces.types import TraceRequest
from router.sim.tokenizer import MESSAGE_MARKER_TOKENS
from router.sim.workload import ChatSession, ChatWorkload

RETRIES = 2  # as OpenAI's clients do


@dataclass(slots=True)
class Asked:
    """One attempt as its client saw it. Times in simulated seconds since the start; None: not yet."""

    asked_s: float
    batch: bool
    status: int | None = None
    first_byte_s: float | None = None
    problem: str = ""
    retry_after_s: float | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Ask:
    think_s: float
    body: bytes


class Script:
    """What a client says, request after request."""

    def __init__(self, starts_s: float, batch: bool) -> None:
        self.starts_s, self.batch = starts_s, batch

    def next_ask(self, answer: str | None) -> Ask | None:
        raise NotImplementedError

    def request(self, body: bytes) -> bytes:
        return post(body, headers="x-warmroute-priority: batch\r\n" if self.batch else "")


class Chat(Script):
    def __init__(self, session: ChatSession, batch: bool) -> None:
        super().__init__(session.starts_s, batch)
        self.session = session

    def next_ask(self, answer: str | None) -> Ask | None:
        turn = self.session.next_turn(answer)
        return None if turn is None else Ask(turn.think_s, body_of(turn.messages, turn.max_tokens))


class Replay(Script):
    """A recorded client, with made-up text: a message for each block, so that equal blocks are equal text."""

    def __init__(self, client: Recorded | Once) -> None:
        super().__init__(client.starts_s, client.batch)
        self.client = client

    def next_ask(self, answer: str | None) -> Ask | None:
        taken = self.client.next_record()
        if taken is None:
            return None
        recorded = taken.recorded
        return Ask(taken.think_s, body_of(messages_of(recorded, taken.salt), max(1, recorded.output_tokens)))


def messages_of(record: TraceRequest, salt: int) -> list[dict[str, str]]:
    size = record.block_tokens
    blocks = [block_text(f"{salt:08x}{block & 0xFFFFFFFF:08x}", size) for block in record.block_hashes]
    rest_tokens = record.prompt_tokens - size * len(blocks)
    if rest_tokens > MESSAGE_MARKER_TOKENS + 2 or not blocks:
        blocks.append(block_text(f"{salt:08x}{record.prompt_tokens:08x}", max(rest_tokens, MESSAGE_MARKER_TOKENS + 2)))
    return [{"role": "user", "content": text} for text in blocks]


def block_text(name: str, tokens: int) -> str:
    """Text of so many tokens, its message's markers included: a name of 16 letters is two."""
    return name + " x" * (tokens - MESSAGE_MARKER_TOKENS - 2)


def body_of(messages: list[dict[str, str]], answer_tokens: int) -> bytes:
    return json.dumps(
        {
            "model": "m",
            "messages": messages,
            "max_tokens": answer_tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()


def chat_scripts(sessions_per_s: float, duration_s: float, seed: int, batch_ratio: float) -> list[Script]:
    chance = Random(seed)
    sessions = ChatWorkload(sessions_per_s, duration_s, seed).sessions()
    return [Chat(session, chance.random() < batch_ratio) for session in sessions]


def replay_scripts(clients: Iterable[Recorded | Once]) -> list[Script]:
    return [Replay(client) for client in clients]


class Crowd(Paced):
    """All clients against one router. `run` returns when the time is over; `drain` when all answers are in."""

    def __init__(self, port: int, scripts: Sequence[Script], duration_s: float, time_scale: float) -> None:
        super().__init__(port, time_scale)
        self.scripts, self.duration_s = scripts, duration_s
        self.asked: list[Asked] = []

    def start(self) -> None:
        self.begin(self.play(script) for script in self.scripts)

    async def play(self, script: Script) -> None:
        await self.sleep_until(script.starts_s)
        text: str | None = None
        while (ask := script.next_ask(text)) is not None:
            due_s = self.now_s() + ask.think_s
            if due_s >= self.duration_s:
                return
            if ask.think_s:
                await self.sleep_until(due_s)
            text = await self.insist(script, ask)

    async def insist(self, script: Script, ask: Ask) -> str | None:
        """Ask until there is an answer, or it was refused too often."""
        for _ in range(1 + RETRIES):
            one, text = await self.ask(script, ask)
            if one.status != 429:
                return text
            again_s = self.now_s() + (one.retry_after_s or 1.0) * self.time_scale
            if again_s >= self.duration_s:
                break
            await self.sleep_until(again_s)
        return None

    async def ask(self, script: Script, ask: Ask) -> tuple[Asked, str | None]:
        one = Asked(self.now_s(), script.batch)
        self.asked.append(one)
        parts: list[bytes] = []

        def note(payload: bytes) -> None:
            if one.first_byte_s is None:
                one.first_byte_s = self.now_s()
            parts.append(payload)

        try:
            answer, connection = await self.line.ask(script.request(ask.body), note)
        except OSError as error:
            one.status, one.problem = 0, str(error)
            return one, None
        one.status, one.problem = answer.status, answer.problem
        one.retry_after_s = connection.retry_after_s or None
        if answer.status != 200:
            return one, None
        content = read_events(b"".join(parts))
        one.prompt_tokens, one.cached_tokens = content.prompt_tokens, content.cached_tokens
        if not answer.ok(True):
            one.problem = one.problem or "not the whole answer"
        return one, content.text


def scripts_of(
    trace: Path | None, agents: int, speed: float, sessions_per_s: float, warm_up_s: float, duration_s: float,
    seed: int, batch_ratio: float, kv_tokens: int,
) -> list[Script]:  # fmt: skip
    if trace is None:
        return chat_scripts(sessions_per_s, duration_s, seed, batch_ratio)
    if agents:
        return replay_scripts(coding_agents(trace, agents, batch_ratio, kv_tokens, warm_up_s).clients(seed))
    clients = open_loop(trace, speed, batch_ratio).clients(seed)
    return replay_scripts(client for client in clients if client.starts_s < duration_s)
