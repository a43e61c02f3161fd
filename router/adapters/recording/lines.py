"""A recording's lines: the first one, which says how the fleet is, and one for each request."""

from __future__ import annotations

import datetime
from base64 import b64encode

import msgspec

from router import __version__
from router.adapters.recording.blocks import Ends, Pieces
from router.adapters.recording.keyed import Keyed
from router.core.fleet import Fleet
from router.core.types import Decision, RoutingRequest
from router.ports import RequestRecord

FORMAT = 1
"""Of these lines. Readers refuse another one."""

MARK = b'{"warmroute_recording":'
"""How a recording begins: what begins otherwise is none, and is not replaced by one."""

_encode = msgspec.json.Encoder().encode


class Opening(msgspec.Struct, omit_defaults=True):
    """A file's first line. What no engine has said so far is left out."""

    warmroute_recording: int
    started: str
    """UTC."""
    version: str
    replicas: int
    block_tokens: int | None = None
    """Of an engine's block, of the first replica that says so."""
    kv_tokens: int | None = None
    """Capacity of a replica's cache; of the smallest."""


class Line(msgspec.Struct, omit_defaults=True):
    """One finished request. What has a default is left out where it is not known."""

    timestamp: int
    """Arrival, milliseconds since the recording began."""
    input_length: int
    output_length: int
    hash_ids: list[int]
    finish_reason: str | None
    model: str
    replica: str
    reason: str
    status: int
    hashes: str
    ends: list[int]
    queued_s: float
    total_s: float
    ttft_s: float | None = None
    cached: int | None = None
    session: str | None = None
    turn: int | None = None


class Lines:
    """Makes lines; their numbers and pseudonyms are one recording's."""

    def __init__(self, key: bytes, started_s: float, started_at_s: float) -> None:
        """`key`: the recording's secret. `started_s`: its begin by the router's clock; `started_at_s`: as Unix time."""
        self._keyed = Keyed(key)
        self._started_s = started_s
        self._started = datetime.datetime.fromtimestamp(started_at_s, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._ends = Ends()
        self._pieces = Pieces()
        self._names: dict[str, str] = {}

    def opening(self, fleet: Fleet) -> bytes:
        """Return the first line of a file that begins now."""
        reports = [replica.report for replica in fleet]
        sizes = [report.kv_tokens for report in reports if report.kv_tokens]
        line = Opening(
            FORMAT,
            self._started,
            __version__,
            len(reports),
            next((report.block_tokens for report in reports if report.block_tokens), None),
            min(sizes, default=None),
        )
        return _encode(line) + b"\n"

    def line(self, record: RequestRecord, request: RoutingRequest, reads: int) -> bytes | None:
        """Return a request's line; None for one that reached no replica, or came before the recording began.

        `reads`: pieces in which the answer came, about one a token; taken where the engine gave no count.
        """
        arrived_s = record.ended_s - record.total_s - self._started_s
        if record.decision is None or arrived_s < 0:
            return None
        return _encode(self._line(record, record.decision, request, reads, arrived_s)) + b"\n"

    def _line(
        self, record: RequestRecord, decision: Decision, request: RoutingRequest, reads: int, arrived_s: float
    ) -> Line:
        usage, prompt, turn = record.usage, request.prompt, record.turn
        tokens = decision.prompt_tokens if usage.prompt_tokens is None else usage.prompt_tokens
        ends = [] if prompt is None else self._ends.of(prompt, tokens)
        return Line(
            int(arrived_s * 1000),
            tokens,
            _answer_tokens(record, reads),
            self._pieces.of(prompt, ends, tokens),
            usage.finish_reason,
            self._name(record.model),
            self._name(decision.replica),
            decision.reason,
            record.status,
            "" if prompt is None else b64encode(self._keyed.hashes(prompt.hashes)).decode(),
            ends,
            round(record.queued_s, 4),
            round(record.total_s, 4),
            None if record.ttft_s is None else round(record.ttft_s, 4),
            usage.cached_tokens,
            self._session(record, request),
            None if turn is None else turn.number,
        )

    def _session(self, record: RequestRecord, request: RoutingRequest) -> str | None:
        if request.session_is_explicit and request.session is not None:
            return self._keyed.session(f"{request.session:x}")
        return None if record.turn is None else self._keyed.session(record.turn.session)

    def _name(self, text: str) -> str:
        name = self._names.get(text)
        if name is None:
            if len(self._names) >= MOST_NAMES:
                self._names.clear()
            name = self._names[text] = self._keyed.name(text)
        return name


def _answer_tokens(record: RequestRecord, reads: int) -> int:
    if record.usage.completion_tokens is not None:
        return record.usage.completion_tokens
    return reads if record.streaming and record.status < 400 else 0


MOST_NAMES = 1_000
"""Pseudonyms kept at hand: clients choose the names of models."""
