"""The backend of `backend.py`, but every chat's answer ends with an engine's `usage`, by which a router learns.

usage: usage_backend.py --port P [--first-delay-ms 0] [--delay-ms 5]

A prompt counts one token for every four bytes of its body. Of cached tokens nothing is said, as by an engine whose
operator did not ask for that.
"""

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Iterator

import uvloop

from benchmarks.backend import EVENT, STREAM, STREAM_END, Backend, sized
from benchmarks.processes import free_ports_in_a_row, running, wait_for_port

BYTES_PER_TOKEN = 4
USAGE = b'"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}'
LAST_EVENT = (
    b'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"m",'
    b'"choices":[],%s}\n\n'
)
COMPLETION = (
    b'{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant",'
    b'"content":"hello"},"finish_reason":"stop"}],%s}'
)


def usage(body: bytes, answer_tokens: int) -> bytes:
    prompt_tokens = len(body) // BYTES_PER_TOKEN
    return USAGE % (prompt_tokens, answer_tokens, prompt_tokens + answer_tokens)


class UsageBackend(Backend):
    def answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"post /v1/chat/completions ") and not STREAM.search(body):
            answer = sized(COMPLETION % usage(body, 1))
            self.timer = self.loop.call_later(self.options.first_delay_ms / 1000, self.transport.write, answer)
        else:
            super().answer(head, body)

    def start_stream(self, body: bytes) -> None:
        super().start_stream(body)
        self.last_event = LAST_EVENT % usage(body, self.left)

    def tick(self) -> None:
        self.write_event(EVENT % time.monotonic_ns())
        self.left -= 1
        if self.left:
            self.timer = self.loop.call_later(self.options.delay_ms / 1000, self.tick)
        else:
            self.write_event(self.last_event)
            self.transport.write(STREAM_END)

    def write_event(self, event: bytes) -> None:
        self.transport.write(b"%x\r\n%s\r\n" % (len(event), event))


@contextlib.contextmanager
def usage_backends(count: int = 2, first_delay_ms: float = 0.0) -> Iterator[list[str]]:
    """The URLs of so many fresh ones, which begin an answer after so long."""
    with contextlib.ExitStack() as stack:
        ports = free_ports_in_a_row(count)
        for port in ports:
            options = ["--port", str(port), "--first-delay-ms", str(first_delay_ms)]
            command = [sys.executable, "-m", "benchmarks.usage_backend", *options]
            wait_for_port(stack.enter_context(running(command)), port)
        yield [f"http://127.0.0.1:{port}" for port in ports]


async def serve(options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: UsageBackend(options, loop), "127.0.0.1", options.port, backlog=2048)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--first-delay-ms", type=float, default=0.0, help="before an answer")
    parser.add_argument("--delay-ms", type=float, default=5.0, help="between two events of a stream")
    # One token for a request that does not say: nothing here measures long answers.
    parser.set_defaults(chunks=1)
    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
