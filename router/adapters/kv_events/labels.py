"""Labels: what a request is called towards its engine, so that the events it causes are known for its own."""

from __future__ import annotations

import xxhash

from router.adapters.kv_events.decode import label_of
from router.core.engine_cache.turns import anchor_key, turn_key
from router.core.ticket import Ticket

HEADER = b"x-session-id"
"""vLLM from 0.30 on copies it into events; before, it is ignored."""

_FIELD = b'"session_id"'
_SEARCHED_BYTES = 4_096
"""Where a body's own `session_id` is looked for, from both ends: messages lie between. The engine takes a field before
the header, so one that is overlooked is not overwritten either; its events are then not known."""


class Labels:
    """Names requests that go to replicas whose events are followed."""

    def __init__(self, seed: int) -> None:
        """`seed`: random, so that several routers' labels differ."""
        self._seed = seed

    def lines(self, ticket: Ticket, own_session: bytes | None, body: bytes) -> bytes:
        """Return header lines to send with an attempt, and note it in what is known of its engine.

        `own_session`: the client's own header of that name; it stays, and stands for the label.
        """
        contents, prompt = ticket.replica.contents, ticket.request.prompt
        if contents is None or prompt is None or _has_field(body):
            return b""
        label = own_session or b"wr-%016x" % xxhash.xxh3_64_intdigest(ticket.number.to_bytes(8, "big"), self._seed)
        scale = ticket.scale
        origin = anchor_key(prompt, scale.anchor, scale.anchor_bytes) if scale is not None and scale.anchor else None
        alone = ticket.replica.streams == 1
        contents.turns.begin(turn_key(prompt), label_of(label.decode("latin-1")), alone, origin)
        return b"" if own_session else b"%b: %b\r\n" % (HEADER, label)


def _has_field(body: bytes) -> bool:
    return _FIELD in body[:_SEARCHED_BYTES] or _FIELD in body[-_SEARCHED_BYTES:]
