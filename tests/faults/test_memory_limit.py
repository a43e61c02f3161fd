"""Memory is short: many large bodies at once are bounded, and one that finds none left harms nobody else."""

from __future__ import annotations

import asyncio
import re
import resource
import signal
from collections import Counter
from pathlib import Path

from tests.rig.client import CHAT, DEADLINE_S, Client, chat, request
from tests.rig.served import Served, serving
from tests.rig.stage import Stage

MIB = 1 << 20

SENDERS = 24

BODY_BYTES = 16 * MIB
"""All of them together are six times what the process may take."""

BODIES = ("--max-body-bytes", "16MiB", "--max-bodies-bytes", "32MiB")


def may_grow_by(served: Served, size: int) -> None:
    """Bound the process to the addresses that it has, and so many bytes."""
    status = Path(f"/proc/{served.process.pid}/status").read_text()
    found = re.search(r"VmSize:\s+(\d+) kB", status)
    assert found is not None
    resource.prlimit(served.process.pid, resource.RLIMIT_AS, (int(found[1]) * 1024 + size, resource.RLIM_INFINITY))


async def send_large(client: Client, size: int = BODY_BYTES) -> int | str:
    """Send a body as it is taken; return the status, or how the connection ended without one."""
    client.send(request(CHAT, b" " * size))
    try:
        return (await client.answer()).status
    except (asyncio.IncompleteReadError, ConnectionError):
        return "lost"


async def test_many_large_bodies_at_once_are_bounded_and_a_stream_goes_on(stage: Stage) -> None:
    replica = await stage.replica(time_scale=1.0)
    async with serving("--replica", replica.url, "--no-log-requests", *BODIES) as served:
        streaming = await stage.client(served)
        stream = await streaming.ask_head(chat(stream=True, max_tokens=60, ignore_eos=True))
        await streaming.chunk(stream)
        may_grow_by(served, 160 * MIB)
        clients = [await stage.client(served) for _ in range(SENDERS)]
        async with asyncio.timeout(3 * DEADLINE_S):
            ended = Counter(await asyncio.gather(*map(send_large, clients)))
        assert ended[503] >= 1
        assert ended[400] >= 1, "those that fit got the engine's opinion of their body"
        assert set(ended) <= {400, 503}
        await streaming.rest(stream)
        assert stream.events()[-1] == "[DONE]"
        assert (await stage.ask(served, chat())).status == 200
        assert await served.metric("warmroute_bodies_bytes") == 0
        served.send(signal.SIGTERM)
        code, log = await served.ended()
    assert code == 0
    assert "Error" not in log


async def test_a_body_that_finds_no_memory_is_refused_and_others_go_on(stage: Stage) -> None:
    """The bound on bodies is far above what the system gives."""
    replica = await stage.replica(time_scale=1.0)
    async with serving("--replica", replica.url, "--no-log-requests") as served:
        streaming, other = await stage.client(served), await stage.client(served)
        stream = await streaming.ask_head(chat(stream=True, max_tokens=60, ignore_eos=True))
        await streaming.chunk(stream)
        may_grow_by(served, 48 * MIB)
        assert await send_large(await stage.client(served), 64 * MIB - 1) in (503, "lost")
        assert (await other.ask(chat())).status == 200
        await streaming.rest(stream)
        assert stream.events()[-1] == "[DONE]"
        assert await served.metric("warmroute_bodies_bytes") == 0
        served.send(signal.SIGTERM)
        code, log = await served.ended()
    assert code == 0
    assert "MemoryError" in log
