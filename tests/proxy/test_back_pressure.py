"""A slow reader slows its own upstream only, with bounded memory; nothing stands between a chunk in and a chunk out."""

import asyncio
import resource

import pytest

from tests.rig.client import Answer, Client, chat, request
from tests.rig.stage import Stage
from tests.rig.upstream import Peer, ScriptedUpstream

CHUNK = b"data: " + b"x" * 65_528 + b"\n\n"
TOTAL_CHUNKS = 1024
"""64 MiB: far more than the kernel's buffers on the way and the router's own hold together."""

MOST_BYTES = 24 << 20
"""What may be on the way to a client that reads nothing: the kernel's buffers of two connections (up to 6 MB each as
Linux tunes them), the router's, and the script's own."""


class Flood:
    """Sends as fast as it is let, and counts what it got rid of."""

    def __init__(self, head: bytes, framed: bool) -> None:
        self.sent_bytes = 0
        self.moved = asyncio.Event()
        self.let_go = asyncio.Event()
        self._head = head
        self._chunk = b"%x\r\n%b\r\n" % (len(CHUNK), CHUNK) if framed else CHUNK

    async def __call__(self, peer: Peer) -> None:
        received = await peer.request()
        if b"quick" in received.body:
            peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            await peer.gone()
            return
        peer.send(self._head)
        for _ in range(TOTAL_CHUNKS):
            peer.send(self._chunk)
            await peer.writer.drain()
            self.sent_bytes += len(CHUNK)
            self.moved.set()
        if b"chunked" in self._head:
            peer.send(b"0\r\n\r\n")
        elif b"content-length" not in self._head:
            peer.close()

    async def stalled(self) -> None:
        """Wait until nothing has been taken off for half a second."""
        while True:
            self.moved.clear()
            try:
                async with asyncio.timeout(0.5):
                    await self.moved.wait()
            except TimeoutError:
                return


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
SIZED_HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(CHUNK) * TOTAL_CHUNKS)
CLOSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


async def unread(stage: Stage, flood: Flood, **options: bool) -> tuple[ScriptedUpstream, Client, Client]:
    """A flood to a client that has read the head and no more; and another client of the same router."""
    upstream = await stage.upstream(flood)
    router = await stage.router(upstream)
    reader = await stage.client(router, receive_buffer_bytes=65_536, read_ahead_bytes=65_536)
    reader.send(chat(version="1.0" if options.get("http_1_0") else "1.1"))
    await flood.moved.wait()
    return upstream, reader, await stage.client(router)


@pytest.mark.parametrize("head", [STREAM_HEAD, SIZED_HEAD, CLOSE_HEAD], ids=["chunked", "sized", "until-close"])
@pytest.mark.parametrize("http_1_0", [False, True], ids=["1.1", "1.0"])
async def test_a_client_that_does_not_read_stops_its_engine_and_gets_all_of_it_later(
    stage: Stage, head: bytes, http_1_0: bool
) -> None:
    flood = Flood(head, framed=head is STREAM_HEAD)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _, reader, other = await unread(stage, flood, http_1_0=http_1_0)
    await flood.stalled()
    assert flood.sent_bytes < MOST_BYTES
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < MOST_BYTES >> 10
    assert (await other.ask(chat("quick"))).body == b"ok"
    answer = await reader.head()
    size = await drained(reader, answer)
    assert size == len(CHUNK) * TOTAL_CHUNKS
    assert flood.sent_bytes == size


async def drained(reader: Client, answer: Answer) -> int:
    """Read a large body without keeping it; return its size."""
    if answer.header("transfer-encoding") is None:
        left = int(answer.header("content-length") or -1)
        size = 0
        while size != left and (part := await reader.reader.read(65_536)):
            size += len(part)
        return size
    size = 0
    while part := await reader.chunk(answer):
        size += len(part)
        answer.chunks.clear()
        answer.body = answer.raw_body = b""
    return size


async def test_a_client_that_stops_reading_and_leaves_is_noticed(stage: Stage) -> None:
    flood = Flood(STREAM_HEAD, framed=True)
    upstream, reader, _ = await unread(stage, flood)
    await flood.stalled()
    reader.reset()
    await stage.routers[0].idle()
    await upstream.peers[0].gone()


async def test_a_client_that_never_reads_is_given_up_after_the_limit_on_silence(stage: Stage) -> None:
    flood = Flood(STREAM_HEAD, framed=True)
    upstream = await stage.upstream(flood)
    router = await stage.router(upstream, silence_timeout_s=1.0)
    reader = await stage.client(router, receive_buffer_bytes=65_536, read_ahead_bytes=65_536)
    reader.send(chat())
    await flood.moved.wait()
    await router.idle()
    await upstream.peers[0].gone()
    assert router.records.finished[-1].outcome == "client-left", "it is no fault of the replica"
    assert router.books(upstream).health.up


async def test_the_upstream_connection_of_a_slow_reader_serves_the_next_client_at_full_speed(stage: Stage) -> None:
    """Reading was paused for one client; the connection must not come back from the pool paused."""
    sizes = [number * 77_777 + 1_500_000 for number in range(6)]

    async def script(peer: Peer) -> None:
        while True:
            size = sizes[len(peer.requests) % len(sizes)]
            await peer.request()
            peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size)

    upstream = await stage.upstream(script)
    router = await stage.router(upstream)
    for size in sizes:
        slow = await stage.client(router, receive_buffer_bytes=4_096, read_ahead_bytes=4_096)
        answer = await slow.ask_head(chat())
        assert answer.header("content-length") == str(size)
        left = size
        while left:
            left -= len(await slow.reader.readexactly(min(left, 16_384)))
            await slow.turn()
    assert len((await stage.ask(router, chat())).body) == sizes[0]
    assert len(upstream.peers) == 1


async def test_each_chunk_goes_out_before_the_next_comes_in(stage: Stage) -> None:
    turn = asyncio.Semaphore(0)

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(STREAM_HEAD)
        for number in range(20):
            await turn.acquire()
            event = b"data: %d\n\n" % number
            peer.send(b"%x\r\n%b\r\n" % (len(event), event))
        peer.send(b"0\r\n\r\n")

    upstream = await stage.upstream(script)
    router = await stage.router(upstream)
    client = await stage.client(router)
    client.send(chat(stream=True))
    turn.release()
    answer = await client.head()
    for number in range(20):
        assert await client.event(answer) == number
        turn.release()
    assert await client.chunk(answer) == b""


async def test_a_large_request_body_to_a_replica_that_does_not_read_holds_nobody_up(stage: Stage) -> None:
    async def script(peer: Peer) -> None:
        if peer.serial == 1:
            await stop.wait()
            received = await peer.request()
            assert len(received.body) == 32 << 20
        else:
            await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        await peer.gone()

    stop = asyncio.Event()
    upstream = await stage.upstream(script)
    router = await stage.router(upstream)
    large, small = await stage.client(router), await stage.client(router)
    large.send(request("/v1/audio/transcriptions", b"x" * (32 << 20)))
    await upstream.peer(1)
    assert (await small.ask(chat())).body == b"ok"
    stop.set()
    assert (await large.answer()).body == b"ok"
