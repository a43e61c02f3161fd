"""What stands between doctor and a server: a balancer over several of them, or a proxy that gathers streams."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

LAST_CHUNK = b"0\r\n\r\n"
READ_BYTES = 65_536


@contextlib.asynccontextmanager
async def link(ports: Sequence[int], *, gathers: bool = False) -> AsyncIterator[str]:
    """Relay each connection to the next of some ports of 127.0.0.1; give the address.

    A link that `gathers` holds a chunked answer back until it is whole.
    """
    turns = 0
    tasks: set[asyncio.Task[None]] = set()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal turns
        port, turns = ports[turns % len(ports)], turns + 1
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.gather(
                _copy(reader, upstream_writer, gathers=False), _copy(upstream_reader, writer, gathers=gathers)
            )
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.gather(*tasks)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, gathers: bool) -> None:
    held = b""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(READ_BYTES):
            held += data
            if not gathers or b"transfer-encoding: chunked" not in held or held.endswith(LAST_CHUNK):
                writer.write(held)
                held = b""
        writer.write(held)
    writer.close()
