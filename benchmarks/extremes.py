"""Two measurements of relay.py: memory of idle streams, and what an 8 MiB body does to another stream."""

import asyncio
import re
import socket
import time
from collections.abc import Callable

from benchmarks.load import Connection, chat_body, closed_loop, connect, post, quantile
from benchmarks.processes import Process

IDLE_BODY_BYTES = 8_000
# One event, then silence for longer than any run.
IDLE_BACKEND = ("--first-delay-ms", "0", "--delay-ms", "3600000")
OPEN_DEADLINE_S = 60.0
SETTLE_S = 1.0  # for allocators and accept queues

TICKING_BACKEND = ("--delay-ms", "5")
BIG_BODY_BYTES = 8 * 2**20
BIG_MESSAGES = 8
BIG_POSTS = 5
QUIET_S = 1.5
BETWEEN_POSTS_S = 0.3
STAMP = re.compile(rb'"content":"(\d{20})"')


async def measure_memory(process: Process | None, port: int, streams: int) -> dict[str, float]:
    """Resident memory of the router, warmed up, with no stream and with `streams` open ones that say nothing."""
    if process is None:
        return {}
    await closed_loop(port, 8, 16, IDLE_BODY_BYTES, False)
    await asyncio.sleep(SETTLE_S)
    before = process.rss_bytes()
    opened = [await connect(port) for _ in range(streams)]
    heard = await asyncio.gather(*(first_event(one, number) for number, one in enumerate(opened)))
    await asyncio.sleep(SETTLE_S)
    after = process.rss_bytes()
    for one in opened:
        await one.close()  # a router that is asked to end waits for its streams
    figures: dict[str, float] = {"start_bytes": before, "open_bytes": after, "added_bytes": after - before}
    return figures | {"streams": sum(heard), "memory_errors": streams - sum(heard)}


async def first_event(connection: Connection, number: int) -> bool:
    """Whether the stream's first event came; the stream stays open."""
    heard = asyncio.Event()
    body = chat_body(f"{number} " + "x y z w " * (IDLE_BODY_BYTES // 8), True)
    done = connection.start(post(body), lambda _: heard.set())
    done.add_done_callback(lambda _: heard.set())
    try:
        await asyncio.wait_for(heard.wait(), OPEN_DEADLINE_S)
    except TimeoutError:
        return False
    return not done.done()


async def measure_big_body(port: int) -> dict[str, float]:
    """How late a stream's events come, first alone and then while 8 MiB bodies are posted.

    An event carries the time it was written at, so neither the backend's timer nor its own stalls count.
    """
    delays: list[float] = []
    stream = await connect(port)
    done = stream.start(post(chat_body("tick", True, max_tokens=1_000_000)), note_delays(delays))
    await asyncio.sleep(QUIET_S)
    quiet = sorted(delays[len(delays) // 3 :])  # the start of a stream is not its steady state
    delays.clear()
    bodies = [big_request(number) for number in range(BIG_POSTS)]
    await asyncio.sleep(BETWEEN_POSTS_S)  # building the bodies held this very loop up
    delays.clear()
    errors = 0
    for body in bodies:
        errors += not await asyncio.to_thread(post_and_wait, port, body)
        await asyncio.sleep(BETWEEN_POSTS_S)
    errors += done.done() or not delays
    await stream.close()
    base_s, worst_s = quantile(quiet, 0.5), max(delays, default=float("nan"))
    figures = {"quiet_p50_s": base_s, "quiet_worst_s": max(quiet, default=float("nan")), "big_body_errors": errors}
    return figures | {"events": len(delays), "worst_s": worst_s, "extra_s": worst_s - base_s}


def note_delays(delays: list[float]) -> Callable[[bytes], None]:
    def on_payload(payload: bytes) -> None:
        now = time.monotonic_ns()
        delays.extend((now - int(stamp)) / 1e9 for stamp in STAMP.findall(payload))

    return on_payload


def big_request(number: int) -> bytes:
    """A long conversation that shares no prefix with the other ones."""
    text = f"{number} lorem ipsum " * (BIG_BODY_BYTES // BIG_MESSAGES // 14)
    roles = ("user", "assistant") * (BIG_MESSAGES // 2)
    messages = ",".join(f'{{"role":"{role}","content":"{text}"}}' for role in roles)
    return post(f'{{"model":"m","stream":false,"messages":[{messages}]}}'.encode())


def post_and_wait(port: int, request: bytes) -> bool:
    """Send from a thread of its own with a blocking socket, so that the measuring loop stays free."""
    with socket.create_connection(("127.0.0.1", port), 30) as sock:
        sock.sendall(request)
        return b" 200 " in sock.recv(65536)[:16]
