"""Every fault of single requests on a raw socket, under both event loops: what a client sees, and when it is over."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from router.sim.faults import Fault, FaultKind
from router.sim.server import SimOptions, SimReplica
from tests.sim.wire import DEADLINE_S, Wire, ask, chat, on_both_loops, request

FAST = SimOptions(time_scale=1_000)
HEALTH = request("/health")
METRICS = request("/metrics")
GONE = (ConnectionResetError, asyncio.IncompleteReadError)


@on_both_loops
async def test_hang_reads_and_never_answers() -> None:
    async with SimReplica(FAST) as replica:
        replica.faults.set(Fault(FaultKind.HANG, count=1))
        async with await Wire.open(replica.port) as wire:
            wire.send(chat())
            await replica.wait_for(lambda: bool(replica.requests) and replica.requests[-1].complete, DEADLINE_S)
            assert (await ask(replica.port, HEALTH)).status == 200
            assert (await ask(replica.port, chat())).status == 200
        hung = replica.requests[0]
        await replica.wait_for(lambda: hung.left_early, DEADLINE_S)
        assert hung.status is None


@on_both_loops
async def test_hang_of_every_path_takes_health_too() -> None:
    async with SimReplica(FAST) as replica, await Wire.open(replica.port) as wire:
        replica.faults.set(Fault(FaultKind.HANG, path="*"))
        wire.send(HEALTH)
        await replica.wait_for(lambda: len(replica.requests) == 1, DEADLINE_S)
        assert (await ask(replica.port, request("/sim/faults", method="DELETE"))).json() == {"faults": []}
        assert (await ask(replica.port, HEALTH)).status == 200
        assert replica.requests[0].status is None


@pytest.mark.parametrize("kind", [FaultKind.SLOW_HEADERS, FaultKind.SLOW_METRICS])
async def test_slow_answers_are_held_back(kind: FaultKind) -> None:
    slow, other = (METRICS, chat()) if kind is FaultKind.SLOW_METRICS else (chat(), METRICS)
    async with SimReplica(FAST) as replica, await Wire.open(replica.port) as wire:
        replica.faults.set(Fault(kind, delay_s=60, count=1))
        wire.send(slow)
        await replica.wait_for(lambda: bool(replica.requests) and replica.requests[0].status == 200, DEADLINE_S)
        assert (await ask(replica.port, other)).status == 200
        assert not replica.requests[0].ended
        replica.faults.set(Fault(kind, delay_s=0.01, count=1))
        assert (await ask(replica.port, slow)).status == 200
        assert replica.faults.active() == ()


@on_both_loops
async def test_a_client_that_leaves_a_held_answer_is_noticed() -> None:
    async with SimReplica(FAST) as replica:
        replica.faults.set(Fault(FaultKind.SLOW_HEADERS, delay_s=60))
        wire = await Wire.open(replica.port)
        wire.send(chat())
        await replica.wait_for(lambda: bool(replica.requests) and replica.requests[0].status == 200, DEADLINE_S)
        wire.leave()
        await replica.wait_for(lambda: replica.requests[0].left_early, DEADLINE_S)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("chunks", [0, 1, 3])
@pytest.mark.parametrize("abort", [True, False])
def test_death_after_some_chunks(run: Callable[..., None], chunks: int, abort: bool) -> None:
    async def scenario() -> None:
        async with SimReplica(FAST) as replica, await Wire.open(replica.port) as wire:
            replica.faults.set(Fault(FaultKind.DIE_AFTER_CHUNKS, after_chunks=chunks, abort=abort, count=1))
            wire.send(chat(stream=True, max_tokens=20))
            answer = await wire.begin(chunks)
            assert (answer.status, len(answer.chunks)) == (200, chunks)
            assert await wire.ending() == ("reset" if abort else "closed")
            await replica.wait_for(lambda: replica.engine.running == 0, DEADLINE_S)
            assert not replica.requests[0].left_early
            assert (await ask(replica.port, chat(stream=True))).data()[-1] == "[DONE]"

    run(scenario())


@on_both_loops
async def test_death_in_the_middle_of_a_sized_answer() -> None:
    async with SimReplica(FAST) as replica, await Wire.open(replica.port) as wire:
        replica.faults.set(Fault(FaultKind.DIE_AFTER_CHUNKS, abort=False))
        wire.send(chat())
        head = await wire.head()
        half = await wire.reader.read()
        assert len(half) == int(head.headers["content-length"]) // 2


@on_both_loops
async def test_reset_before_the_first_byte() -> None:
    for abort, ending in ((True, "reset"), (False, "closed")):
        async with SimReplica(FAST) as replica, await Wire.open(replica.port) as wire:
            replica.faults.set(Fault(FaultKind.RESET_BEFORE_FIRST_BYTE, abort=abort, count=1))
            wire.send(chat())
            assert await wire.ending() == ending
            assert replica.requests[0].complete
            assert (await ask(replica.port, chat())).status == 200


@on_both_loops
async def test_a_reused_connection_is_closed_as_the_request_arrives() -> None:
    async with SimReplica(FAST) as replica, await Wire.open(replica.port) as wire:
        replica.faults.set(Fault(FaultKind.CLOSE_REUSED, count=1))
        assert (await wire.ask(chat())).status == 200
        wire.send(chat())
        assert await wire.ending() in ("reset", "closed")
        assert len(replica.requests) == 1
        async with await Wire.open(replica.port) as fresh:
            assert [(await fresh.ask(chat())).status for _ in range(2)] == [200, 200]


@pytest.mark.parametrize(
    ("status", "kind", "says"),
    [
        (429, "Too Many Requests", "Too Many Requests"),
        (503, "Service Unavailable", "The engine is currently busy"),
        (500, "InternalServerError", "Internal Server Error"),
    ],
)
async def test_statuses_have_vllms_bodies(status: int, kind: str, says: str) -> None:
    async with SimReplica(FAST) as replica:
        replica.faults.set(Fault(FaultKind.STATUS, status=status, count=1))
        answer = await ask(replica.port, chat(stream=True))
        assert (await ask(replica.port, chat())).status == 200
    error = answer.json()["error"]
    assert (answer.status, error["type"], error["param"], error["code"]) == (status, kind, None, status)
    assert error["message"].startswith(says)
    assert "retry-after" not in answer.headers


async def test_a_status_with_words_and_retry_after() -> None:
    async with SimReplica(FAST) as replica:
        replica.faults.set(Fault(FaultKind.STATUS, status=429, message="slow down", retry_after_s=7))
        answer = await ask(replica.port, chat())
    assert (answer.headers["retry-after"], answer.json()["error"]["message"]) == ("7", "slow down")


async def test_a_stream_error_comes_after_some_events_and_ends_properly() -> None:
    async with SimReplica(FAST) as replica:
        replica.faults.set(Fault(FaultKind.STREAM_ERROR, after_chunks=2, count=1))
        broken = (await ask(replica.port, chat(stream=True))).data()
        await replica.wait_for(lambda: replica.engine.running == 0, DEADLINE_S)
        whole = (await ask(replica.port, chat(stream=True))).data()
    assert ["error" in event for event in broken] == [False, False, True, False]
    assert broken[-1] == whole[-1] == "[DONE]"
    assert not any("error" in event for event in whole)


async def test_metrics_missing_garbage_and_partial() -> None:
    async with SimReplica(FAST) as replica:
        answers = {}
        for kind in (FaultKind.METRICS_MISSING, FaultKind.METRICS_GARBAGE, FaultKind.METRICS_PARTIAL):
            replica.faults.set(Fault(kind, count=1))
            answers[kind] = await ask(replica.port, METRICS)
        whole = await ask(replica.port, METRICS)
    assert answers[FaultKind.METRICS_MISSING].status == 404
    assert b"\xff" in answers[FaultKind.METRICS_GARBAGE].body
    partial = answers[FaultKind.METRICS_PARTIAL].body
    assert 0 < len(partial) < len(whole.body) // 4
    assert not partial.endswith(b"\n")
    assert b"prefix_cache_hits" not in partial


@on_both_loops
async def test_an_answer_that_ends_with_the_connection() -> None:
    async with SimReplica(FAST) as replica:
        replica.faults.set(Fault(FaultKind.CLOSE_DELIMITED))
        sized = await ask(replica.port, chat())
        stream = await ask(replica.port, chat(stream=True))
    for answer in (sized, stream):
        assert answer.headers["connection"] == "close"
        assert "content-length" not in answer.headers
        assert "transfer-encoding" not in answer.headers
    assert sized.json()["usage"]["completion_tokens"] == 4
    assert stream.data()[-1] == "[DONE]"


@on_both_loops
async def test_framing_turned_round() -> None:
    async with SimReplica(FAST) as replica, await Wire.open(replica.port) as wire:
        replica.faults.set(Fault(FaultKind.CHUNKED_JSON, count=1))
        chunked = await wire.ask(chat())
        replica.faults.clear()
        replica.faults.set(Fault(FaultKind.SIZED_STREAM, count=1))
        sized = await wire.ask(chat(stream=True))
        plain = await wire.ask(chat())
    assert (len(chunked.chunks), chunked.json()["usage"]["completion_tokens"]) == (2, 4)
    assert int(sized.headers["content-length"]) == len(sized.body)
    assert sized.data()[-1] == "[DONE]"
    assert plain.json()["choices"] == chunked.json()["choices"]


@on_both_loops
async def test_trailers_and_interim_answers() -> None:
    async with SimReplica(FAST) as replica, await Wire.open(replica.port) as wire:
        replica.faults.set(Fault(FaultKind.TRAILERS, count=1), Fault(FaultKind.INTERIM, count=2))
        wire.send(chat(stream=True))
        hints, stream = await wire.head(), await wire.answer()
        wire.send(chat())
        again, sized = await wire.head(), await wire.answer()
        replica.faults.set(Fault(FaultKind.INTERIM, status=100, count=1))
        wire.send(chat())
        assert [(await wire.head()).status, (await wire.answer()).status] == [100, 200]
    assert (hints.status, again.status) == (103, 103)
    assert "link" in hints.headers
    assert (stream.headers["trailer"], stream.trailers) == ("x-sim-trailer", {"x-sim-trailer": "end"})
    assert (sized.status, stream.data()[-1]) == (200, "[DONE]")
