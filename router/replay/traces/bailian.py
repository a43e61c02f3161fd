"""Alibaba's Bailian traces (alibaba-edu/qwen-bailian-usagetraces-anon): one JSON object a request, with its parent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from router.replay.traces.lines import records
from router.replay.traces.types import NonNegative, NonNegativeSeconds, Positive, TraceRequest, runs_of

BAILIAN_BLOCK_TOKENS = 16
"""As these traces are cut: their files are named blksz_16."""
ANSWER_TOKEN_S = 0.02
"""Seconds that an output token is taken to have lasted: the trace says when requests came, not when answers ended, and
think times need both. The decode step of the engine that the policies were compared on."""

_NO_PARENT = -1


class _Record(msgspec.Struct):
    chat_id: int
    timestamp: NonNegativeSeconds
    input_length: Positive
    output_length: NonNegative
    hash_ids: list[int]
    parent_chat_id: int = _NO_PARENT


def read_bailian(lines: Iterable[str]) -> Iterator[TraceRequest]:
    """Yield the requests of a Bailian trace (JSON lines; timestamps in s, blocks of 16 tokens) in order of arrival.

    A session is a root and all that name it as their parent, directly or not.

    Raises:
        TraceError: a line is not of this format.
    """
    roots: dict[int, int] = {}
    last: dict[int, _Record] = {}
    for record in sorted((record for _, record in records(lines, _Record)), key=lambda record: record.timestamp):
        root = roots[record.chat_id] = roots.get(record.parent_chat_id, record.chat_id)
        yield _request(record, root, last.get(root))
        last[root] = record


def _request(record: _Record, root: int, before: _Record | None) -> TraceRequest:
    full = record.hash_ids[: record.input_length // BAILIAN_BLOCK_TOKENS]
    return TraceRequest(
        session_id=str(root),
        arrives_s=record.timestamp,
        think_s=_think_s(record, before),
        prompt_tokens=record.input_length,
        output_tokens=record.output_length,
        finish_reason="stop",
        block_tokens=BAILIAN_BLOCK_TOKENS,
        block_runs=runs_of(full),
    )


def _think_s(record: _Record, before: _Record | None) -> float:
    if before is None:
        return 0.0
    return max(0.0, record.timestamp - before.timestamp - before.output_length * ANSWER_TOKEN_S)
