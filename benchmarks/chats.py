"""Drives sessions over HTTP, as those of `router.sim.workload`: the next turn comes one think time after the answer."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.load import Answer, Pool, post, quantile
from router.sim.workload import ChatTurn

UNCOUNTED_SHARE = 0.25  # of the run: the caches are filling
DRAIN_SIMULATED_S = 300.0
COUNTER = re.compile(rb"^vllm:prefix_cache_(queries|hits)_total\S* (\S+)", re.MULTILINE)
GET_METRICS = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Session(Protocol):
    """One client, driven with the answers it gets (None: there was none)."""

    starts_s: float

    def next_turn(self, answer: str | None = None) -> ChatTurn | None: ...


class Workload(Protocol):
    """Who comes when. Times in simulated seconds."""

    @property
    def duration_s(self) -> float: ...

    def sessions(self) -> Iterable[Session]: ...


@dataclass(frozen=True, slots=True)
class Turn:
    """One request as the client saw it. Times in simulated seconds since the start."""

    sent_s: float
    ttft_s: float
    ok: bool
    prompt_tokens: int = 0
    cached_tokens: int = 0


def request_of(turn: ChatTurn, session_header: bool) -> bytes:
    body = {
        "model": "m",
        "messages": turn.messages,
        "max_tokens": turn.max_tokens,
        "ignore_eos": True,  # every router gets the same answers' lengths
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    headers = f"x-session-id: {turn.session_id}\r\n" if session_header else ""
    return post(json.dumps(body).encode(), headers=headers)


@dataclass(frozen=True, slots=True)
class Content:
    """What a stream said: its text, and the engine's own count of tokens (0 where it did not say)."""

    text: str
    prompt_tokens: int = 0
    cached_tokens: int = 0
    answer_tokens: int = 0


def read_events(payload: bytes) -> Content:
    text, tokens = [], (0, 0, 0)
    for event in payload.split(b"\n\n"):
        if not event.startswith(b"data: {"):
            continue
        data = json.loads(event[6:])
        text += [choice["delta"].get("content") or "" for choice in data.get("choices", ())]
        if usage := data.get("usage"):
            cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            tokens = (usage["prompt_tokens"], cached_tokens, usage["completion_tokens"])
    return Content("".join(text), *tokens)


class Chats:
    """A workload against one router. `run` returns when the last answer is in."""

    def __init__(
        self, port: int, replicas: Sequence[int], workload: Workload, time_scale: float, session_header: bool
    ) -> None:
        self.workload, self.time_scale, self.session_header = workload, time_scale, session_header
        self.loop = asyncio.get_running_loop()
        # 40 ms of a held-back acknowledgement would count as 320 at eight times the speed of life.
        self.pool = Pool(port, quick_ack=True)
        self.replicas = [Pool(replica) for replica in replicas]
        self.turns: list[Turn] = []
        self.problems: Counter[str] = Counter()
        self.late_s: list[float] = []
        self.unfinished = 0
        self.uncached_tokens: list[int] = []

    def now_s(self) -> float:
        return (self.loop.time() - self.started_s) * self.time_scale

    async def sleep_until(self, simulated_s: float) -> None:
        await asyncio.sleep(max(0.0, simulated_s - self.now_s()) / self.time_scale)
        self.late_s.append(self.now_s() - simulated_s)

    async def run(self) -> None:
        sessions = list(self.workload.sessions())
        self.started_s = self.loop.time()
        tasks = [asyncio.create_task(self.converse(session)) for session in sessions]
        await self.sleep_until(self.workload.duration_s * UNCOUNTED_SHARE)
        before = await self.uncached_so_far()
        await self.sleep_until(self.workload.duration_s)
        _, open_tasks = await asyncio.wait(tasks, timeout=DRAIN_SIMULATED_S / self.time_scale)
        self.unfinished = len(open_tasks)
        for task in open_tasks:
            task.cancel()
        after = await self.uncached_so_far()
        self.uncached_tokens = [late - early for early, late in zip(before, after, strict=True)]
        for pool in (self.pool, *self.replicas):
            pool.close()

    async def converse(self, session: Session) -> None:
        await self.sleep_until(session.starts_s)
        text: str | None = None
        while (turn := session.next_turn(text)) is not None:
            due_s = self.now_s() + turn.think_s
            if due_s >= self.workload.duration_s:
                return
            if turn.think_s:
                await self.sleep_until(due_s)
            text = await self.take(turn)

    async def take(self, turn: ChatTurn) -> str | None:
        parts: list[bytes] = []
        request = request_of(turn, self.session_header)
        sent_s = self.now_s()
        try:
            answer = await self.pool.exchange(request, parts.append)
        except OSError as error:
            answer = Answer(problem=str(error))
        ttft_s = answer.first_byte_s * self.time_scale
        content = read_events(b"".join(parts))
        ok = answer.ok(True) and content.answer_tokens == turn.max_tokens
        if not ok:
            self.problems[f"status {answer.status}, {answer.problem or 'not the whole answer'}"] += 1
        self.turns.append(Turn(sent_s, ttft_s, ok, content.prompt_tokens, content.cached_tokens))
        return content.text if ok else None

    async def uncached_so_far(self) -> list[int]:
        """Prompt tokens that each replica had to compute."""
        computed = []
        for pool in self.replicas:
            page: list[bytes] = []
            await pool.exchange(GET_METRICS, page.append)
            counters = {name: float(value) for name, value in COUNTER.findall(b"".join(page))}
            computed.append(round(counters[b"queries"] - counters[b"hits"]))
        return computed

    def figures(self) -> dict[str, float]:
        start_s = self.workload.duration_s * UNCOUNTED_SHARE
        counted = [turn for turn in self.turns if turn.sent_s >= start_s]
        good = [turn for turn in counted if turn.ok]
        ttfts = sorted(turn.ttft_s for turn in good)
        prompt_tokens = sum(turn.prompt_tokens for turn in good)
        mean_uncached = sum(self.uncached_tokens) / len(self.uncached_tokens)
        return {
            "requests": len(counted),
            "errors": len(counted) - len(good) + self.unfinished,
            "hit_ratio": sum(turn.cached_tokens for turn in good) / max(1, prompt_tokens),
            "ttft_mean_s": sum(ttfts) / len(ttfts) if ttfts else float("nan"),
            "ttft_p50_s": quantile(ttfts, 0.5),
            "ttft_p95_s": quantile(ttfts, 0.95),
            "ttft_p99_s": quantile(ttfts, 0.99),
            "imbalance": max(self.uncached_tokens) / max(1.0, mean_uncached),
            "client_late_p99_s": quantile(sorted(self.late_s), 0.99),
        }
