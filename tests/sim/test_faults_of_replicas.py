"""Faults of the whole replica, and how faults are switched: from Python, over HTTP, through a neighbour."""

import asyncio
import socket

import pytest

from router.sim.faults import REPLICA_WIDE, Fault, FaultBoard, FaultKind, read_order
from router.sim.server import SimOptions, SimReplica, serve_many, stop_all
from router.sim.types import EngineConfig
from tests.sim.wire import CHAT, DEADLINE_S, MESSAGES, Wire, ask, chat, on_both_loops, request

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
            await wire.begin(2)
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
