"""Drives multi-turn chats over HTTP and keeps what each request got."""

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from router.app.demo.lag import Lateness, watch
from router.sim.workload import ChatSession, ChatTurn

MODEL = "sim-model"
"""What the simulated replicas serve; each request names it, as real clients do."""
# No limit on a generation; a replica that does not answer within a minute in a demo of one minute is broken.
_TIMEOUT = httpx.Timeout(60.0)
_NO_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=None)


@dataclass(frozen=True, slots=True)
class Answer:
    """One request and what came back. Seconds are the client's own, unscaled."""

    turn: ChatTurn
    replica: str
    text: str
    ttft_s: float
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int

    @property
    def uncached_tokens(self) -> int:
        return self.prompt_tokens - self.cached_tokens


@dataclass(slots=True)
class Outcome:
    """All answers in the order in which they ended, and what went wrong."""

    answers: list[Answer] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    lateness: Lateness = field(default_factory=Lateness)

    @property
    def hit_ratio(self) -> float:
        """Cached prompt tokens over all prompt tokens, as the replicas reported them."""
        prompt_tokens = sum(answer.prompt_tokens for answer in self.answers)
        return sum(answer.cached_tokens for answer in self.answers) / prompt_tokens if prompt_tokens else 0.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How the workload's seconds pass on the wall: arrivals, and thinking, which may be quicker still."""

    wall_per_workload_s: float
    wall_per_think_s: float


async def drive(
    url: str,
    sessions: Iterable[ChatSession],
    pace: Pace,
    seconds: float,
    told: Callable[[Outcome], None],
    *,
    watched: Mapping[str, str],
) -> Outcome:
    """Runs the sessions against `url` and stops after `seconds`, wherever they are; `told` after each answer.

    `watched` are URLs by process that are asked meanwhile, to see how late each one is.
    """
    outcome = Outcome()
    async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT, limits=_NO_LIMITS, trust_env=False) as client:

        async def run(session: ChatSession) -> None:
            await asyncio.sleep(session.starts_s * pace.wall_per_workload_s)
            await _converse(client, session, pace, outcome, told)

        watching = asyncio.create_task(watch(watched, outcome.lateness))
        try:
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for session in sessions:
                    group.create_task(run(session))
        except TimeoutError:
            pass
        finally:
            watching.cancel()
            await asyncio.wait([watching])
    return outcome


async def _converse(
    client: httpx.AsyncClient, session: ChatSession, pace: Pace, outcome: Outcome, told: Callable[[Outcome], None]
) -> None:
    turn = session.next_turn()
    while turn is not None:
        await asyncio.sleep(turn.think_s * pace.wall_per_think_s)
        try:
            answer = await ask(client, turn)
        except (httpx.HTTPError, ValueError) as error:
            outcome.failures.append(f"{type(error).__name__}: {error}")
            return
        outcome.answers.append(answer)
        told(outcome)
        turn = session.next_turn(answer.text)


async def ask(client: httpx.AsyncClient, turn: ChatTurn) -> Answer:
    """Streams one turn; httpx.HTTPError or ValueError when the answer is not a whole one."""
    body = {
        "model": MODEL,
        "messages": turn.messages,
        "max_tokens": turn.max_tokens,
        "ignore_eos": True,  # the workload has drawn how long the answer is
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    sent_s = time.perf_counter()
    first_s: float | None = None
    stream = bytearray()
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        async for chunk in response.aiter_raw():
            first_s = first_s or time.perf_counter()
            stream += chunk
    if response.status_code != 200 or first_s is None:
        raise ValueError(f"status {response.status_code}: {stream[:200].decode(errors='replace')}")
    text, usage = _read_events(bytes(stream))
    return Answer(
        turn=turn,
        replica=response.headers.get("x-warmroute-replica", "?"),
        text=text,
        ttft_s=first_s - sent_s,
        prompt_tokens=usage["prompt_tokens"],
        cached_tokens=usage["prompt_tokens_details"]["cached_tokens"],
        completion_tokens=usage["completion_tokens"],
    )


def _read_events(stream: bytes) -> tuple[str, dict[str, Any]]:
    """The text and the usage of a whole stream."""
    data = [event.removeprefix(b"data: ") for event in stream.split(b"\n\n") if event.startswith(b"data: ")]
    if not data or data[-1] != b"[DONE]":
        raise ValueError("the stream ended without [DONE]")
    chunks = [json.loads(line) for line in data[:-1]]
    if "usage" not in chunks[-1]:
        raise ValueError(f"the stream ended without usage: {chunks[-1]}")
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    return text, chunks[-1]["usage"]
