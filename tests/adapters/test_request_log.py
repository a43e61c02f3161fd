"""The request log: one JSON line each, gathered and written together, and never in anybody's way."""

from __future__ import annotations

import asyncio
import io
import json

import pytest

from router.adapters.request_log import FLUSH_BYTES, RequestLog
from router.core.types import OutcomeKind
from tests.adapters.records import record


class Stream(io.BytesIO):
    """Counts writes, and tells of them."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.written = asyncio.Event()

    def flush(self) -> None:
        self.writes += 1
        self.written.set()

    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


async def test_a_finished_request_is_one_line_with_its_figures() -> None:
    log = RequestLog(stream := Stream())
    log.request_finished(record())
    log.flush()
    (line,) = stream.lines()
    assert line == {
        "event": "request_finished",
        "request_id": "id-1",
        "method": "POST",
        "path": "/v1/chat/completions",
        "model": "m",
        "status": 200,
        "outcome": "completed",
        "attempts": 1,
        "overhead_ms": 0.12,
        "queued_ms": 0.0,
        "ttft_ms": 250.0,
        "total_ms": 1500.0,
        "prompt_tokens": 500,
        "cached_tokens": 464,
        "completion_tokens": 20,
        "finish_reason": "stop",
        "replica": "r-1",
        "reason": "warm",
        "matched_tokens": 480,
        "source": "local",
    }


async def test_what_there_was_not_is_null_or_absent() -> None:
    log = RequestLog(stream := Stream())
    log.request_finished(record(decision=None, outcome=None, ttft_s=None, status=503, error="no_replica"))
    log.flush()
    (line,) = stream.lines()
    assert (line["outcome"], line["ttft_ms"], line["error"]) == (None, None, "no_replica")
    assert "replica" not in line


async def test_a_failed_attempt_is_a_line() -> None:
    log = RequestLog(stream := Stream())
    log.attempt_failed("r-1", OutcomeKind.REFUSED)
    log.flush()
    assert stream.lines() == [{"event": "attempt_failed", "replica": "r-1", "kind": "refused"}]


async def test_lines_are_written_together_and_by_themselves() -> None:
    log = RequestLog(stream := Stream())
    for _ in range(100):
        log.request_finished(record())
    assert stream.writes == 0
    async with asyncio.timeout(5):
        await stream.written.wait()
    assert (stream.writes, len(stream.lines())) == (1, 100)


async def test_much_is_not_gathered() -> None:
    log = RequestLog(stream := Stream())
    sent = 0
    while not stream.writes:
        log.request_finished(record())
        sent += 1
        assert sent < 10_000
    assert FLUSH_BYTES <= len(stream.getvalue()) < FLUSH_BYTES + 1_000


async def test_names_from_clients_make_no_lines() -> None:
    log = RequestLog(stream := Stream())
    log.request_finished(record(model='x"\n{"event":"forged"}', request_id="a\r\nb\u2028c", path="/v1/\x00"))
    log.flush()
    (line,) = stream.lines()
    assert line["model"] == 'x"\n{"event":"forged"}'
    assert stream.getvalue().count(b"\n") == 1


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(28, "no space left"), ValueError("closed file")])
async def test_a_log_that_can_not_be_written_stops_nothing(error: Exception) -> None:
    class Broken(Stream):
        def write(self, data: object) -> int:
            raise error

    log = RequestLog(Broken())
    log.request_finished(record())
    log.flush()
    log.request_finished(record())
    log.flush()
