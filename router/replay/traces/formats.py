"""Which format a trace has, by its first line; and the whole of it, read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import msgspec

from router.replay.traces.bailian import read_bailian
from router.replay.traces.coding import read_coding_sessions
from router.replay.traces.lines import TraceError
from router.replay.traces.mooncake import read_mooncake
from router.replay.traces.recording import Fleet, read_fleet, read_recording
from router.replay.traces.types import TraceRequest

Format = Literal["mooncake", "bailian", "coding", "recording"]

_TELLING: dict[Format, frozenset[str]] = {
    "recording": frozenset({"warmroute_recording"}),
    "coding": frozenset({"block_size", "requests"}),
    "bailian": frozenset({"chat_id", "timestamp", "hash_ids"}),
    "mooncake": frozenset({"timestamp", "hash_ids"}),
}
"""Fields of the first line, the telling ones first: a Bailian line has all of Mooncake's, too."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Recorded traffic."""

    format: Format
    block_tokens: int
    sessions: list[list[TraceRequest]]
    """Each with its requests in order; a request without a session is one of its own."""
    fleet: Fleet | None = None
    """Of a recording: what it was recorded with."""

    @property
    def stamped(self) -> bool:
        """Whether `arrives_s` counts from the start of the trace, so that it can be replayed in open loop."""
        return self.format != "coding"

    @property
    def names_sessions(self) -> bool:
        """Whether it says who waited for whose answer, so that it can be replayed in closed loop."""
        return any(session[0].session_id for session in self.sessions)

    @property
    def requests(self) -> list[TraceRequest]:
        """All requests, in order of arrival."""
        return sorted(chain.from_iterable(self.sessions), key=lambda request: request.arrives_s)

    @property
    def duration_s(self) -> float:
        """Until the last arrival; of coding agents, of the longest session."""
        return max(session[-1].arrives_s for session in self.sessions)


def read_trace(lines: Iterable[str]) -> Trace:
    """Read a trace of any format; all of its requests are in memory then, about 1 kB each.

    Raises:
        TraceError: the first line is of no known format, a later one of another, or there is no request.
    """
    given = iter(lines)
    first = next(given, "")
    kind = _format_of(first)
    sessions = _READERS[kind](chain([first], given))
    sessions = [session for session in sessions if session]
    if not sessions:
        raise TraceError(1, "the trace has no requests")
    sizes = {request.block_tokens for session in sessions for request in session}
    if len(sizes) > 1:
        raise TraceError(1, f"sessions with blocks of {' and '.join(map(str, sorted(sizes)))} tokens: split the file")
    return Trace(kind, sizes.pop(), sessions, read_fleet(first) if kind == "recording" else None)


def _format_of(first: str) -> Format:
    if not first.strip():
        raise TraceError(1, "the trace is empty")
    try:
        found: Any = msgspec.json.decode(first)
    except msgspec.DecodeError as error:
        raise TraceError(1, f"no JSON object: {error}") from None
    if isinstance(found, dict):
        for kind, fields in _TELLING.items():
            if fields <= found.keys():
                return kind
    raise TraceError(1, "neither Mooncake's format, nor Bailian's, nor coding agents', nor a recording")


def _by_session(requests: Iterable[TraceRequest]) -> Iterator[list[TraceRequest]]:
    """In order of their first requests. Those of no session stand alone."""
    named: dict[str, list[TraceRequest]] = {}
    for request in requests:
        session = named.setdefault(request.session_id, []) if request.session_id else []
        session.append(request)
        if len(session) == 1:
            yield session


_READERS: dict[Format, Callable[[Iterable[str]], Iterable[list[TraceRequest]]]] = {
    "recording": lambda lines: list(_by_session(read_recording(lines))),
    "coding": read_coding_sessions,
    "bailian": lambda lines: list(_by_session(read_bailian(lines))),
    "mooncake": lambda lines: list(_by_session(read_mooncake(lines))),
}
