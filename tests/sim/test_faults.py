"""Every fault on a raw socket, under both event loops: what a client sees, and that it is over when it should be."""

import asyncio
import socket
from collections.abc import Callable

import pytest
import uvloop

from router.sim.faults import REPLICA_WIDE, Fault, FaultBoard, FaultKind, read_order
from router.sim.server import SimOptions, SimReplica, serve_many, stop_all
from router.sim.types import EngineConfig
from tests.sim.wire import CHAT, DEADLINE_S, MESSAGES, Answer, Wire, ask, chat, on_both_loops, request

FAST = SimOptions(time_scale=1_000)
HEALTH = request("/health")
METRICS = request("/metrics")
GONE = (ConnectionResetError, asyncio.IncompleteReadError)


async def refused(port: int) -> bool:
    try:
        wire = await Wire.open(port)
    except ConnectionRefusedError:
        return True
    wire.leave()
    return False


async def data_chunks(wire: Wire, count: int) -> Answer:
    """Read the head and so many events of a stream."""
    answer = await wire.head()
    for _ in range(count):
        await wire.chunk(answer)
    return answer


@on_both_loops
async def test_refuse_closes_the_listener_only() -> None:
    async with SimReplica(FAST) as replica, await Wire.open(replica.port) as old:
        assert (await old.ask(HEALTH)).status == 200
        replica.faults.set(Fault(FaultKind.REFUSE))
        assert await refused(replica.port)
        assert (await old.ask(chat())).status == 200
        replica.faults.clear(FaultKind.REFUSE)
        assert (await ask(replica.port, HEALTH)).status == 200


@on_both_loops
async def test_refuse_for_a_while_ends_by_itself() -> None:
    async with SimReplica(FAST) as replica, await Wire.open(replica.port) as old:
        assert (await old.ask(HEALTH)).status == 200
        replica.faults.set(Fault(FaultKind.REFUSE, for_s=0.02))
        # Without giving the loop a turn, so that no time-out can be over yet.
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", replica.port))
        await replica.wait_for(lambda: not replica.faults.active(), DEADLINE_S)
        assert (await ask(replica.port, HEALTH)).status == 200


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
            answer = await data_chunks(wire, chunks)
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


async def test_shutdown_lets_streams_end_and_refuses_new_work() -> None:
    async with SimReplica(SimOptions()) as replica, await Wire.open(replica.port) as wire:
        replica.faults.set(Fault(FaultKind.SLEEP))
        wire.send(chat(stream=True))
        stream = await wire.head()
        replica.faults.set(Fault(FaultKind.SHUTDOWN_500))
        answer = await ask(replica.port, chat())
        assert (await ask(replica.port, HEALTH)).status == 200
        replica.faults.clear(FaultKind.SLEEP)
        while await wire.chunk(stream):
            pass
    assert answer.status == 500
    assert answer.json()["error"]["message"] == "cannot schedule new futures after shutdown"
    assert stream.data()[-1] == "[DONE]"


@on_both_loops
async def test_a_dead_engine_is_told_and_then_the_process_is_gone() -> None:
    async with SimReplica(SimOptions()) as replica:
        replica.faults.set(Fault(FaultKind.SLEEP))
        wire, sized, anthropic = [await Wire.open(replica.port) for _ in range(3)]
        wire.send(chat(stream=True))
        sized.send(chat())
        anthropic.send(request("/v1/messages", {"messages": MESSAGES, "max_tokens": 3, "stream": True}))
        await replica.wait_for(lambda: replica.engine.running + replica.engine.waiting == 3, DEADLINE_S)
        replica.faults.clear()
        replica.faults.set(Fault(FaultKind.ENGINE_DIED, delay_s=60))
        told, plain, other = [await client.answer() for client in (wire, sized, anthropic)]
        assert (await ask(replica.port, HEALTH)).status == 503
        assert (await ask(replica.port, chat())).status == 500
        for client in (wire, sized, anthropic):
            client.leave()
    assert told.status == 200
    assert told.data()[-1] == "[DONE]"
    assert told.data()[-2]["error"]["message"].startswith("EngineCore encountered an issue.")
    assert told.data()[-2]["error"]["code"] == 500
    assert b'data: {"error": {"message": "' in told.body
    assert (plain.status, plain.json()["error"]["type"]) == (500, "InternalServerError")
    assert (other.data()[-1]["type"], b"message_stop" in other.body) == ("error", False)


@on_both_loops
async def test_a_dead_engine_takes_the_process_with_it() -> None:
    async with SimReplica(SimOptions()) as replica, await Wire.open(replica.port) as idle:
        assert (await idle.ask(HEALTH)).status == 200
        replica.faults.set(Fault(FaultKind.ENGINE_DIED))
        assert await idle.ending() == "closed"
        assert await refused(replica.port)
        replica.faults.clear()
        assert (await ask(replica.port, chat())).status == 200
        assert replica.engine.stats.finished["length"] == 1


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
async def test_a_cold_restart_forgets_all() -> None:
    async with SimReplica(SimOptions(time_scale=1_000)) as replica, await Wire.open(replica.port) as old:
        long = [{"role": "user", "content": "one two three four five six seven eight nine ten " * 20}]
        assert (await old.ask(chat(messages=long))).status == 200
        warm = await ask(replica.port, chat(messages=long))
        replica.restart_cold()
        assert await old.ending() in ("reset", "closed")
        cold = await ask(replica.port, chat(messages=long))
        assert replica.engine.stats.prompt_tokens == cold.json()["usage"]["prompt_tokens"]
    details = [answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in (warm, cold)]
    assert details[0] > 0
    assert details[1] == 0


@on_both_loops
async def test_asleep_health_is_well_and_requests_wait() -> None:
    async with SimReplica(SimOptions()) as replica, await Wire.open(replica.port) as wire:
        replica.faults.set(Fault(FaultKind.SLEEP))
        wire.send(chat(stream=True, max_tokens=2))
        stream = await wire.head()
        assert (await ask(replica.port, HEALTH)).status == 200
        assert replica.requests[0].chunks_sent == 0
        replica.faults.clear(FaultKind.SLEEP)
        while await wire.chunk(stream):
            pass
        assert stream.data()[-1] == "[DONE]"


@on_both_loops
async def test_a_silent_sigterm_leaves_open_streams_without_a_word() -> None:
    async with SimReplica(SimOptions()) as replica, await Wire.open(replica.port) as idle:
        assert (await idle.ask(HEALTH)).status == 200
        async with await Wire.open(replica.port) as wire:
            wire.send(chat(stream=True, max_tokens=1_000))
            await data_chunks(wire, 2)
            replica.faults.set(Fault(FaultKind.SILENT_SIGTERM))
            assert await idle.ending() == "closed"
            assert await refused(replica.port)
            assert replica.engine.running == 1
            sent = replica.requests[-1].chunks_sent
            assert replica.engine.next_event_s() is not None
            assert replica.state.driver.frozen
        await replica.wait_for(lambda: replica.requests[-1].left_early, DEADLINE_S)
        assert replica.requests[-1].chunks_sent == sent
        assert replica.engine.running == 0
        replica.faults.clear()
        assert (await ask(replica.port, chat())).status == 200


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


async def test_faults_are_switched_over_http_and_never_hit_that() -> None:
    async with SimReplica(FAST) as replica:
        order = {"set": [{"kind": "status", "status": 500, "path": "*", "count": 2}, {"kind": "hang", "path": "/v1/c"}]}
        listed = (await ask(replica.port, request("/sim/faults", order))).json()["faults"]
        assert [fault["kind"] for fault in listed] == ["hang", "status"]
        assert (await ask(replica.port, HEALTH)).status == 500
        assert [fault.count for fault in replica.faults.active()] == [None, 1]
        cleared = (await ask(replica.port, request("/sim/faults", {"clear": ["hang"]}))).json()["faults"]
        assert [fault["kind"] for fault in cleared] == ["status"]
        assert (await ask(replica.port, request("/sim/faults", {"clear": "all"}))).json() == {"faults": []}
        assert (await ask(replica.port, request("/sim/faults", {"set": [{"kind": "restart_cold"}]}))).status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"set":[{"kind":"earthquake"}]}',
        b'{"set":[{"kind":"refuse","count":1}]}',
        b'{"set":[{"kind":"status","status":99}]}',
        b'{"clear":"some"}',
        b'{"unset":[]}',
        b'{"replica":7}',
    ],
)
async def test_orders_that_mean_nothing_are_refused(body: bytes) -> None:
    async with SimReplica(FAST) as replica:
        assert (await ask(replica.port, request("/sim/faults", body))).status == 400
        assert replica.faults.active() == ()


async def test_a_refusing_replica_is_brought_back_through_its_neighbour() -> None:
    replicas = await serve_many(2, FAST)
    try:
        first, second = replicas
        await ask(first.port, request("/sim/faults", {"replica": 1, "set": [{"kind": "refuse"}]}))
        assert await refused(second.port)
        await ask(first.port, request("/sim/faults", {"replica": 1, "clear": ["refuse"]}))
        assert (await ask(second.port, HEALTH)).status == 200
    finally:
        await stop_all(replicas)


def test_the_board_counts_paths_and_order() -> None:
    told: list[tuple[str, FaultKind]] = []
    board = FaultBoard(lambda fault: told.append(("set", fault.kind)), lambda fault: told.append(("clear", fault.kind)))
    older = Fault(FaultKind.STATUS, status=500, count=2)
    newer = Fault(FaultKind.STATUS, status=429, count=1, path=CHAT)
    board.set(older, newer)
    assert board.take("/health") == {}
    assert board.take(CHAT) == {FaultKind.STATUS: newer}
    assert board.take(CHAT) == {FaultKind.STATUS: older}
    assert board.active() == (Fault(FaultKind.STATUS, status=500, count=1),)
    board.clear(FaultKind.HANG)
    assert board.has(FaultKind.STATUS)
    board.drop(older)
    assert (board.active(), told[-1]) == ((), ("clear", FaultKind.STATUS))


@pytest.mark.parametrize("kind", sorted(REPLICA_WIDE))
def test_faults_of_the_whole_replica_take_no_count(kind: FaultKind) -> None:
    with pytest.raises(ValueError, match="count"):
        Fault(kind, count=1)
    assert read_order(b'{"set":[{"kind":"%b"}]}' % kind.encode()).set == [Fault(kind)]


async def test_faults_do_not_hit_other_replicas() -> None:
    config = EngineConfig(max_num_seqs=4)
    async with SimReplica(SimOptions(engine=config, time_scale=1_000)) as one, SimReplica(FAST) as other:
        one.faults.set(Fault(FaultKind.STATUS))
        assert (await ask(one.port, chat())).status == 503
        assert (await ask(other.port, chat())).status == 200
