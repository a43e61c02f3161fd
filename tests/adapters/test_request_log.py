"""The request log: one JSON line each, gathered and written together, and never in anybody's way."""

from __future__ import annotations

import asyncio
import io
import json

import pytest

from router.adapters.request_log import FLUSH_BYTES, RequestLog
from router.core.misses.types import Cause, Change, TurnAccount
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
        "retried_ms": 0.0,
        "connect_ms": 0.0,
        "prefill_ms": 249.9,
        "decode_ms": 1250.0,
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
    no_content = {"ttft_s": None, "prefill_s": None, "decode_s": None}
    log.request_finished(record(decision=None, outcome=None, status=503, error="no_replica", **no_content))
    log.flush()
    (line,) = stream.lines()
    assert (line["outcome"], line["ttft_ms"], line["error"]) == (None, None, "no_replica")
    assert (line["prefill_ms"], line["decode_ms"]) == (None, None)
    assert not {"replica", "session", "turn", "lost_tokens", "cause", "change", "idle_s"} & set(line)


async def test_a_turn_that_lost_tokens_says_why_and_what_was_changed() -> None:
    log = RequestLog(stream := Stream())
    change = Change(Cause.EDITED, 3, "user", 120)
    log.request_finished(record(turn=TurnAccount("s-9", 4, 31.26, 480, 128, 352, Cause.EVICTED, change)))
    log.flush()
    (line,) = stream.lines()
    turn = {key: line[key] for key in ("session", "turn", "idle_s", "history_tokens", "lost_tokens", "cause", "change")}
    assert turn == {
        "session": "s-9",
        "turn": 4,
        "idle_s": 31.3,
        "history_tokens": 480,
        "lost_tokens": 352,
        "cause": "evicted",
        "change": {"cause": "edited", "message": 3, "role": "user"},
    }


async def test_a_turn_that_hit_says_so_by_saying_no_more() -> None:
    log = RequestLog(stream := Stream())
    log.request_finished(record(turn=TurnAccount("s-9", 4, 31.26, 480, 480, 0, None, None)))
    log.request_finished(record(turn=TurnAccount("s-10", 1, None, 0, 0, 0, Cause.FIRST_SEEN, None)))
    log.flush()
    hit, first = stream.lines()
    assert (hit["lost_tokens"], "cause" in hit, "change" in hit) == (0, False, False)
    assert (first["cause"], "idle_s" in first) == ("first-seen", False)


async def test_a_change_before_the_messages_has_no_index() -> None:
    log = RequestLog(stream := Stream())
    change = Change(Cause.TOOLS_REORDERED, None, "tools", 0)
    log.request_finished(record(turn=TurnAccount("s-9", 2, 1.0, 480, 0, 480, Cause.TOOLS_REORDERED, change)))
    log.flush()
    assert stream.lines()[0]["change"] == {"cause": "tools-reordered", "message": None, "role": "tools"}


async def test_the_phases_in_a_line_add_up_to_its_total() -> None:
    log = RequestLog(stream := Stream())
    log.request_finished(
        record(
            overhead_s=0.0005,
            queued_s=1.5,
            retried_s=0.25,
            connect_s=0.002,
            prefill_s=0.75,
            decode_s=2.5,
            total_s=5.0025,
        )
    )
    log.flush()
    (line,) = stream.lines()
    names = ("overhead_ms", "queued_ms", "retried_ms", "connect_ms", "prefill_ms", "decode_ms")
    assert [line[name] for name in names] == [0.5, 1500.0, 250.0, 2.0, 750.0, 2500.0]
    assert line["total_ms"] == 5002.5


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
