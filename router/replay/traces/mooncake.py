"""Mooncake's traces: one JSON object a request, in order of arrival, prompts as blocks of 512 tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from router.replay.traces.types import TraceRequest, runs_of

MOONCAKE_BLOCK_TOKENS = 512
"""As the traces of kvcache-ai/Mooncake (FAST25-release/traces) are cut."""


def read_mooncake(lines: Iterable[str]) -> Iterator[TraceRequest]:
    """Yield the requests of a trace in Mooncake's format (JSON lines; timestamps in ms, blocks of 512 tokens)."""
    for line in lines:
        record = json.loads(line)
        prompt_tokens = record["input_length"]
        # The trace also names the last, partial block, which no engine can reuse.
        full = record["hash_ids"][: prompt_tokens // MOONCAKE_BLOCK_TOKENS]
        yield TraceRequest(
            session_id="",
            arrives_s=record["timestamp"] / 1000,
            think_s=None,
            prompt_tokens=prompt_tokens,
            output_tokens=record["output_length"],
            finish_reason="stop",
            block_tokens=MOONCAKE_BLOCK_TOKENS,
            block_runs=runs_of(full),
        )
