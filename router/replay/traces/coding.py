"""Recorded coding agents (callanjfox/kv-cache-tester): one JSON object a session, with think times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from xxhash import xxh3_64_intdigest

from router.replay.traces.lines import TraceError, records
from router.replay.traces.types import NonNegative, NonNegativeSeconds, Positive, TraceRequest

_FINISH_REASONS = {"tool_use": "tool_calls", "max_tokens": "length"}
_SUBAGENT = "subagent"


class _Entry(msgspec.Struct):
    """A request, or a sub-agent with requests of its own: which fields are there depends on `type`."""

    type: str
    t: float = 0.0
    input_tokens: Positive | None = msgspec.field(default=None, name="in")
    output_tokens: NonNegative = msgspec.field(default=0, name="out")
    hash_ids: list[tuple[int, NonNegative]] = []
    stop: str | None = ""
    # Missing only behind a sub-agent, whose answer the next request has been waiting for.
    think_time: NonNegativeSeconds = 0.0
    agent_id: str = ""
    requests: list[_Entry] = []


class _Session(msgspec.Struct):
    id: str
    block_size: Positive
    requests: list[_Entry]


def read_coding_sessions(lines: Iterable[str]) -> Iterator[list[TraceRequest]]:
    """Yield recorded coding-agent sessions (kv-cache-tester's JSON lines), each with its requests in order.

    A sub-agent is a session of its own, with the id `parent/agent`; it shares its parent's block identities.

    Raises:
        TraceError: a line is not of this format.
    """
    for line, session in records(lines, _Session):
        # Identities are local to a session. 62 bits leave room to count up without leaving 64.
        scope = xxh3_64_intdigest(session.id.encode()) >> 2
        yield _requests(session.requests, session.id, session.block_size, scope, line)
        for entry in session.requests:
            if entry.type == _SUBAGENT:
                yield _requests(entry.requests, f"{session.id}/{entry.agent_id}", session.block_size, scope, line)


def _requests(
    entries: Sequence[_Entry], session_id: str, block_tokens: int, scope: int, line: int
) -> list[TraceRequest]:
    return [_request(entry, session_id, block_tokens, scope, line) for entry in entries if entry.type != _SUBAGENT]


def _request(entry: _Entry, session_id: str, block_tokens: int, scope: int, line: int) -> TraceRequest:
    if entry.input_tokens is None:
        raise TraceError(line, "a request of the session lacks the field `in`")
    return TraceRequest(
        session_id=session_id,
        arrives_s=entry.t,
        think_s=entry.think_time,
        prompt_tokens=entry.input_tokens,
        output_tokens=entry.output_tokens,
        finish_reason=_FINISH_REASONS.get(entry.stop or "", "stop"),
        block_tokens=block_tokens,
        block_runs=tuple((scope + first, count) for first, count in entry.hash_ids),
    )
