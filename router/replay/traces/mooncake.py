"""Mooncake's traces: one JSON object a request, in order of arrival, prompts as blocks of 512 tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec

from router.replay.traces.lines import records
from router.replay.traces.types import NonNegative, Positive, TraceRequest, runs_of

MOONCAKE_BLOCK_TOKENS = 512
"""As the traces of kvcache-ai/Mooncake (FAST25-release/traces) are cut."""


class _Record(msgspec.Struct):
    timestamp: Annotated[float, msgspec.Meta(ge=0)]  # ms
    input_length: Positive
    output_length: NonNegative
    hash_ids: list[int]


def read_mooncake(lines: Iterable[str]) -> Iterator[TraceRequest]:
    """Yield the requests of a trace in Mooncake's format (JSON lines; timestamps in ms, blocks of 512 tokens).

    Raises:
        TraceError: a line is not of this format.
    """
    for _, record in records(lines, _Record):
        # The trace also names the last, partial block, which no engine can reuse.
        full = record.hash_ids[: record.input_length // MOONCAKE_BLOCK_TOKENS]
        yield TraceRequest(
            session_id="",
            arrives_s=record.timestamp / 1000,
            think_s=None,
            prompt_tokens=record.input_length,
            output_tokens=record.output_length,
            finish_reason="stop",
            block_tokens=MOONCAKE_BLOCK_TOKENS,
            block_runs=runs_of(full),
        )
