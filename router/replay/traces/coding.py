"""Recorded coding agents (callanjfox/kv-cache-tester): one JSON object a session, with think times."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from xxhash import xxh3_64_intdigest

from router.replay.traces.types import TraceRequest

_FINISH_REASONS = {"tool_use": "tool_calls", "max_tokens": "length"}


def read_coding_sessions(lines: Iterable[str]) -> Iterator[list[TraceRequest]]:
    """Yield recorded coding-agent sessions (kv-cache-tester's JSON lines), each with its requests in order.

    A sub-agent is a session of its own, with the id `parent/agent`; it shares its parent's block identities.
    """
    for line in lines:
        record = json.loads(line)
        # Identities are local to a session. 62 bits leave room to count up without leaving 64.
        scope = xxh3_64_intdigest(record["id"].encode()) >> 2
        yield _coding_session(record, record["id"], record["block_size"], scope)
        for entry in record["requests"]:
            if entry["type"] == "subagent":
                yield _coding_session(entry, f"{record['id']}/{entry['agent_id']}", record["block_size"], scope)


def _coding_session(record: dict[str, Any], session_id: str, block_tokens: int, scope: int) -> list[TraceRequest]:
    return [
        TraceRequest(
            session_id=session_id,
            arrives_s=entry["t"],
            # Missing only behind a sub-agent, whose answer the next request has been waiting for.
            think_s=entry.get("think_time", 0.0),
            prompt_tokens=entry["in"],
            output_tokens=entry["out"],
            finish_reason=_FINISH_REASONS.get(entry["stop"], "stop"),
            block_tokens=block_tokens,
            block_runs=tuple((scope + first, count) for first, count in entry["hash_ids"]),
        )
        for entry in record["requests"]
        if entry["type"] != "subagent"
    ]
