"""Publishes an engine's cache events over ZMQ as vLLM does, with faults. Needs the extra `kv-events`."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from router.sim.options import KvEventsOptions
from router.sim.types import SimRequest

_END = b"\xff" * 8
_STORED = (
    "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys",
    "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window", "locality", "ownership", "session_id",
)  # fmt: skip
_REMOVED = ("block_hashes", "medium", "group_idx")
_encoder = msgspec.msgpack.Encoder()


@dataclass(slots=True)
class EventFaults:
    """What goes wrong, until it is changed back."""

    lose: int = 0
    """So many batches are numbered and kept, and never arrive at subscribers."""
    frozen: bool = False
    """Nothing is published and nothing is replayed; what happens meanwhile is numbered and kept."""
    garbage: bool = False
    """Batches are no msgpack."""


class KvPublisher:
    """The events of one engine: `blocks.CacheListener`, `driver.Publisher`. Make it inside the event loop."""

    def __init__(self, options: KvEventsOptions, block_tokens: int, rank: int, host: str) -> None:
        self.faults = EventFaults()
        self._options = options
        self._block_tokens = block_tokens
        self._rank = rank
        self._pending: list[Any] = []
        self._number = 0
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=options.buffer_steps)
        self._topic = options.topic.encode()
        self._context = zmq.Context()
        self._pub = self._context.socket(zmq.XPUB)  # a PUB that tells who listens
        self._pub.set(zmq.XPUB_VERBOSER, 1)
        self._subscribers = 0
        self._replays = zmq.asyncio.Context()
        self._router = self._replays.socket(zmq.ROUTER) if options.replay else None
        self._serving = None if self._router is None else asyncio.ensure_future(self._serve_replays(self._router))
        if options.connect_to is None:
            self.endpoint = _bound(self._pub, host)
        else:
            self.endpoint = options.connect_to
            self._pub.connect(options.connect_to)
        self.replay_endpoint = None if self._router is None else _bound(self._router, host)

    @property
    def published(self) -> int:
        """How many batches were numbered since the start."""
        return self._number

    @property
    def subscribers(self) -> int:
        """How many listen now."""
        with contextlib.suppress(zmq.Again):
            while True:
                self._subscribers += 1 if self._pub.recv(zmq.NOBLOCK)[:1] == b"\x01" else -1
        return self._subscribers

    def config(self) -> dict[str, Any]:
        """Return what /kv_event_sources says of it."""
        return {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": self.endpoint,
            "replay_endpoint": self.replay_endpoint,
            "buffer_steps": self._options.buffer_steps,
            "hwm": 100_000,
            "max_queue_size": 100_000,
            "topic": self._options.topic,
        }

    # blocks.CacheListener

    def stored(self, request: SimRequest, hashes: Sequence[int], first: int, after: int) -> None:
        """Tell of a request's blocks from `first` up to `after`."""
        size = self._block_tokens
        ids = [*request.token_ids, *request.output_token_ids][first * size : after * size]
        named = request.named
        extra_keys = [[named.adapter] if named and named.adapter else None for _ in range(first, after)]
        if first == 0 and named and named.cache_salt:
            extra_keys[0] = [*(extra_keys[0] or []), named.cache_salt]
        event = {
            "block_hashes": [self._shown(known) for known in hashes[first:after]],
            "parent_block_hash": self._shown(hashes[first - 1]) if first else None,
            "token_ids": ids,
            "block_size": size,
            "lora_id": None,
            "medium": "GPU",
            "lora_name": named.adapter if named else None,
            "extra_keys": extra_keys,
            "group_idx": 0,
            "kv_cache_spec_kind": "full_attention",
        }
        if self._options.name_sessions and named and named.session is not None:
            event["session_id"] = named.session
        self._tell("BlockStored", event, _STORED)

    def removed(self, block_hash: int) -> None:
        """Tell of a block that lost its content."""
        self._tell(
            "BlockRemoved", {"block_hashes": [self._shown(block_hash)], "medium": "GPU", "group_idx": 0}, _REMOVED
        )

    def cleared(self) -> None:
        """Tell that all blocks did. As with vLLM, it goes out with what happens next."""
        self._tell("AllBlocksCleared", {}, ())

    def _tell(self, tag: str, event: dict[str, Any], fields: Sequence[str]) -> None:
        if self._options.arrays:
            self._pending.append([tag, *(event.get(field) for field in fields)])
        else:
            self._pending.append({"type": tag} | event)

    def _shown(self, block_hash: int) -> int | bytes:
        return bytes(24) + block_hash.to_bytes(8, "big") if self._options.byte_hashes else block_hash

    # driver.Publisher

    def flush(self) -> None:
        """Publish what has happened since the last time, if anything has."""
        if not self._pending:
            return
        events, self._pending = self._pending, []
        self._publish(_encoder.encode([time.time(), events, self._rank]))

    def restart(self) -> None:
        """Begin again, as a new process does."""
        self._pending, self._number = [], 0
        self._kept.clear()

    def _publish(self, payload: bytes) -> None:
        number, self._number = self._number, self._number + 1
        if self.faults.garbage:
            payload = b"\xc1" + payload
        self._kept.append((number, payload))
        if self.faults.frozen:
            return
        if self.faults.lose:
            self.faults.lose -= 1
            return
        self._pub.send_multipart((self._topic, number.to_bytes(8, "big"), payload), zmq.NOBLOCK)

    async def _serve_replays(self, router: zmq.asyncio.Socket) -> None:
        while True:
            frames = await router.recv_multipart()
            if len(frames) != 3 or self.faults.frozen:
                continue
            first = int.from_bytes(frames[2], "big")
            topic = [] if self._options.arrays else [self._topic]
            for number, payload in [kept for kept in self._kept if kept[0] >= first]:
                await router.send_multipart([frames[0], b"", *topic, number.to_bytes(8, "big"), payload])
            await router.send_multipart([frames[0], b"", *([b""] if topic else []), _END, b""])

    async def close(self) -> None:
        """Close the sockets."""
        if self._serving is not None:
            self._serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._serving
        self._replays.destroy(linger=0)
        self._context.destroy(linger=0)


def _bound(socket: zmq.Socket[Any], host: str) -> str:
    """Bind a free port; return the endpoint as vLLM shows one that it has bound."""
    if ":" in host:
        socket.set(zmq.IPV6, 1)
        host = f"[{host}]"
    socket.bind(f"tcp://{host}:*")
    port = socket.get_string(zmq.LAST_ENDPOINT).rpartition(":")[2]
    return f"tcp://*:{port}"
