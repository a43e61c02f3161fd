"""A minimal OpenAI-shaped backend, so cheap that the router in front of it is what gets measured.

usage: backend.py --port P [--chunks 64] [--delay-ms 5] [--first-delay-ms MS]

A streamed request gets `max_tokens` (or --chunks) SSE events, --delay-ms apart, then `data: [DONE]`; any other POST one
small JSON answer; GET /metrics a page of a real engine's size; every other GET a model list. The content of each event
is the backend's monotonic clock in nanoseconds when it was written, so a client on the same machine knows how long the
event was on its way.
"""

import argparse
import asyncio
import re
import time
from typing import cast

import uvloop

EVENT = (
    b'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":"%020d"},"logprobs":null,"finish_reason":null}]}\n\n'
)
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
STREAM_END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
# The fields which one or the other router asks for before it takes a backend into service.
MODELS = b'{"object":"list","data":[{"id":"m","object":"model"}],"model_path":"m","status":"ok","version":"0.32.0"}'
COMPLETION = (
    b'{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant",'
    b'"content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":2000,"completion_tokens":1,'
    b'"total_tokens":2001,"prompt_tokens_details":{"cached_tokens":0}}}'
)
# What an 8 kB prompt comes to; for routers that have every prompt tokenised by the replicas.
TOKEN_IDS = b"[" + b",".join(b"%d" % token for token in range(2_000)) + b"]"
TOKENS = b'{"count":2000,"max_model_len":131072,"tokens":%s}' % TOKEN_IDS
RENDERED = b'{"request_id":"x","model":"m","token_ids":%s,"sampling_params":{}}' % TOKEN_IDS
MAX_TOKENS = re.compile(rb'"max_(?:completion_)?tokens"\s*:\s*(\d+)')
STREAM = re.compile(rb'"stream"\s*:\s*true')
LENGTH = re.compile(rb"content-length:\s*(\d+)")
SEARCHED_BYTES = 65_536
# A replica's page is 50 to 68 kB: mostly histograms of which a router reads nothing, but which it has to skip.
HISTOGRAMS, BUCKETS = 26, 20


def metrics_page() -> bytes:
    labels = 'engine="0",model_name="m"'
    lines = [f"vllm:num_requests_running{{{labels}}} 0.0", f"vllm:num_requests_waiting{{{labels}}} 0.0"]
    lines += [f"vllm:kv_cache_usage_perc{{{labels}}} 0.0", "process_start_time_seconds 1.7e+09"]
    lines += [f"vllm:prefix_cache_{name}_total{{{labels}}} 0.0" for name in ("queries", "hits")]
    lines += ['vllm:cache_config_info{block_size="16",kv_cache_size_tokens="300000",num_gpu_blocks="18750"} 1.0']
    for number in range(HISTOGRAMS):
        name = f"vllm:request_histogram_{number:02d}_seconds"
        lines += [f"# HELP {name} A histogram as an engine has them.", f"# TYPE {name} histogram"]
        lines += [f'{name}_bucket{{{labels},le="{0.3 * 2**i}"}} 0.0' for i in range(BUCKETS)]
        lines += [f"{name}_count{{{labels}}} 0.0", f"{name}_sum{{{labels}}} 0.0"]
    return "\n".join(lines).encode() + b"\n"


def sized(body: bytes, content_type: bytes = b"application/json") -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n" % (content_type, len(body)) + body


def plain_answer(head: bytes) -> bytes | None:
    """The whole answer to a request that wants no completion, by its lower-case head; None: it wants one."""
    if head.startswith(b"get /metrics"):
        return sized(METRICS, b"text/plain; version=1.0.0; charset=utf-8")
    if not head.startswith(b"post"):
        return sized(MODELS)
    if head.startswith(b"post /tokenize"):
        return sized(TOKENS)
    if head.startswith(b"post /v1/chat/completions/render"):
        return sized(RENDERED)
    return None


class Requests:
    """What arrives on one connection: requests in turn, each answered when its body is whole."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.head: bytes | None = None
        self.needed = 0

    def answer(self, head: bytes, body: bytes) -> None:
        raise NotImplementedError

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while self.take_request():
            pass

    def take_request(self) -> bool:
        if self.head is None:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return False
            self.head = bytes(self.buffer[:end]).lower()
            del self.buffer[: end + 4]
            length = LENGTH.search(self.head)
            self.needed = int(length[1]) if length else 0
        body = self.chunked_body() if b"transfer-encoding: chunked" in self.head else self.sized_body()
        if body is None:
            return False
        head, self.head = self.head, None
        # The ends of a big body, not its whole: a search through 8 MiB would hold up the other streams.
        self.answer(head, body if len(body) <= SEARCHED_BYTES else body[:SEARCHED_BYTES] + body[-SEARCHED_BYTES:])
        return True

    def sized_body(self) -> bytes | None:
        if len(self.buffer) < self.needed:
            return None
        body = bytes(self.buffer[: self.needed])
        del self.buffer[: self.needed]
        return body

    def chunked_body(self) -> bytes | None:
        """The framing stays in: nothing here depends on the exact text."""
        end = self.buffer.find(b"0\r\n\r\n", max(0, len(self.buffer) - 5))
        if end < 0:
            return None
        body = bytes(self.buffer)
        self.buffer.clear()
        return body


class Backend(Requests, asyncio.Protocol):
    """One connection."""

    def __init__(self, options: argparse.Namespace, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.options, self.loop = options, loop
        self.timer: asyncio.Handle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer:
            self.timer.cancel()

    def answer(self, head: bytes, body: bytes) -> None:
        plain = plain_answer(head)
        if plain is not None:
            self.transport.write(plain)
        elif STREAM.search(body):
            self.start_stream(body)
        else:
            self.transport.write(sized(COMPLETION))

    def start_stream(self, body: bytes) -> None:
        wanted = MAX_TOKENS.search(body)
        self.left = int(wanted[1]) if wanted else self.options.chunks
        self.transport.write(STREAM_HEAD)
        self.timer = self.loop.call_later(self.options.first_delay_ms / 1000, self.tick)

    def tick(self) -> None:
        event = EVENT % time.monotonic_ns()
        self.transport.write(b"%x\r\n%s\r\n" % (len(event), event))
        self.left -= 1
        if self.left:
            self.timer = self.loop.call_later(self.options.delay_ms / 1000, self.tick)
        else:
            self.transport.write(STREAM_END)


METRICS = metrics_page()


async def serve(options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Backend(options, loop), "127.0.0.1", options.port, backlog=2048)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--chunks", type=int, default=64, help="events of a stream that asks for no max_tokens")
    parser.add_argument("--delay-ms", type=float, default=5.0, help="between two events of a stream")
    parser.add_argument("--first-delay-ms", type=float, help="before the first event (default: as --delay-ms)")
    options = parser.parse_args()
    if options.first_delay_ms is None:
        options.first_delay_ms = options.delay_ms
    uvloop.run(serve(options))


if __name__ == "__main__":
    main()
