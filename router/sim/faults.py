"""Faults that a replica can be told to have, and which requests they hit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

import msgspec


class FaultKind(StrEnum):
    """What goes wrong. Those in `REPLICA_WIDE` are states of the whole replica; the others hit single requests."""

    REFUSE = "refuse"
    """The listening socket is closed until the fault is cleared; open connections live on."""
    SLEEP = "sleep"
    """/health says 200, requests wait without end (vLLM's /sleep and /pause)."""
    SILENT_SIGTERM = "silent_sigterm"
    """vLLM after SIGTERM: no new connections, idle ones closed, open streams stay open and silent."""
    ENGINE_DIED = "engine_died"
    """Streams get an error event and a proper end, other requests 500; after `delay_s` (0.2 s) the process is gone."""
    RESTART_COLD = "restart_cold"
    """Done at once and never listed: connections reset, cache, counters and stored responses gone, new start time."""

    HANG = "hang"
    """The request is read and never answered."""
    SLOW_HEADERS = "slow_headers"
    """The answer's first byte is held back by `delay_s`."""
    SLOW_METRICS = "slow_metrics"
    """As `slow_headers`, for /metrics."""
    RESET_BEFORE_FIRST_BYTE = "reset_before_first_byte"
    """The connection is closed as soon as the request has arrived; see `abort`."""
    CLOSE_REUSED = "close_reused"
    """A connection that has answered before is closed as its next request arrives: the keep-alive race."""
    DIE_AFTER_CHUNKS = "die_after_chunks"
    """The connection is closed after `after_chunks` events; an answer of known length is cut in its middle."""
    STREAM_ERROR = "stream_error"
    """After `after_chunks` events the stream says that its engine died, and ends properly."""
    STATUS = "status"
    """Answer `status` with vLLM's body for it."""
    SHUTDOWN_500 = "shutdown_500"
    """vLLM within --shutdown-timeout: 500 'cannot schedule new futures after shutdown', while /health says 200."""
    METRICS_GARBAGE = "metrics_garbage"
    METRICS_MISSING = "metrics_missing"
    """404."""
    METRICS_PARTIAL = "metrics_partial"
    """The text ends in the middle of a line and lacks what came after."""
    CLOSE_DELIMITED = "close_delimited"
    """No length and no chunks: the answer ends with the connection."""
    CHUNKED_JSON = "chunked_json"
    """An answer of known length is sent in two chunks."""
    SIZED_STREAM = "sized_stream"
    """A stream is held back until it is whole and sent with a content-length."""
    TRAILERS = "trailers"
    """A chunked answer ends with trailer fields."""
    INTERIM = "interim"
    """An interim (1xx) answer comes first: `status`, 103 where none is given."""


REPLICA_WIDE = frozenset(
    {
        FaultKind.REFUSE,
        FaultKind.SLEEP,
        FaultKind.SILENT_SIGTERM,
        FaultKind.ENGINE_DIED,
        FaultKind.RESTART_COLD,
    }
)
_METRICS_KINDS = frozenset(
    {FaultKind.SLOW_METRICS, FaultKind.METRICS_GARBAGE, FaultKind.METRICS_MISSING, FaultKind.METRICS_PARTIAL}
)
_PROBES = frozenset(
    {"/health", "/ping", "/metrics", "/version", "/load", "/v1/models", "/kv_event_sources", "/is_paused"}
)

CONTROL_PATH = "/sim/faults"
"""Never hit by a fault."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong. Times are wall-clock seconds."""

    kind: FaultKind
    count: int | None = None
    """How many requests it hits before it is over; None: until cleared. Not for replica-wide kinds."""
    path: str | None = None
    """Requests it hits: None: inference requests (not health, models, metrics); "*": all; else a prefix of the path."""
    delay_s: float = 0.0
    for_s: float | None = None
    """The fault clears itself after this; needed to end `refuse` over HTTP on a replica that runs alone."""
    after_chunks: int = 0
    abort: bool = True
    """How a connection is closed: True: reset; False: a clean end, as if all had been said."""
    status: int = 503
    message: str | None = None
    """In place of vLLM's own text."""
    retry_after_s: int | None = None
    """A Retry-After header on `status`; vLLM sends none."""

    def __post_init__(self) -> None:
        """Refuse what means nothing.

        Raises:
            ValueError: a count on a replica-wide kind, a number out of range.
        """
        if self.count is not None and (self.count < 1 or self.kind in REPLICA_WIDE):
            raise ValueError(f"{self.kind}: count is at least 1, and not for a fault of the whole replica")
        if self.delay_s < 0 or self.after_chunks < 0 or not 100 <= self.status <= 599:
            raise ValueError(f"{self.kind}: delay_s and after_chunks are not negative, status is from 100 to 599")
        if self.for_s is not None and self.for_s <= 0:
            raise ValueError(f"{self.kind}: for_s is above 0")

    def hits(self, path: str) -> bool:
        """Whether a request for this path is one of those meant."""
        if self.kind in _METRICS_KINDS:
            return path == "/metrics"
        if path.startswith(CONTROL_PATH):
            return False
        if self.path is None:
            return path not in _PROBES
        return self.path == "*" or path.startswith(self.path)


Taken = Mapping[FaultKind, Fault]
"""The faults that hit one request, at most one of a kind."""

UNHURT: Taken = MappingProxyType({})


@dataclass(slots=True, eq=False)
class _InForce:
    fault: Fault
    left: int | None

    def count_off(self) -> None:
        if self.left is not None:
            self.left -= 1


class FaultBoard:
    """The faults in force. `on_set` and `on_clear` are told of every change as it happens."""

    def __init__(self, on_set: Callable[[Fault], None], on_clear: Callable[[Fault], None]) -> None:
        self._on_set = on_set
        self._on_clear = on_clear
        self._in_force: list[_InForce] = []

    def set(self, *faults: Fault) -> None:
        """Put faults in force. Of several that hit a request in the same way, the one set last does."""
        for fault in faults:
            if fault.kind is not FaultKind.RESTART_COLD:
                self._in_force.insert(0, _InForce(fault, fault.count))
            self._on_set(fault)

    def clear(self, *kinds: FaultKind) -> None:
        """End all faults of these kinds; without any: all faults."""
        self._end([held for held in self._in_force if not kinds or held.fault.kind in kinds])

    def drop(self, fault: Fault) -> None:
        """End this very fault, where it is still in force."""
        self._end([held for held in self._in_force if held.fault is fault])

    def active(self) -> tuple[Fault, ...]:
        """Return the faults in force, latest first; a count is what is left of it."""
        return tuple(replace(held.fault, count=held.left) for held in self._in_force)

    def has(self, kind: FaultKind) -> bool:
        """Whether a fault of this kind is in force."""
        return any(held.fault.kind is kind for held in self._in_force)

    def take(self, path: str) -> Taken:
        """Return the faults that hit a request for this path, and count it off them."""
        if not self._in_force:
            return UNHURT
        hitting = [held for held in self._in_force if _hits_requests(held.fault) and held.fault.hits(path)]
        return self._count_off({held.fault.kind: held for held in reversed(hitting)})

    def take_close_reused(self) -> Fault | None:
        """Return the fault that closes a reused connection, if any, and count it off."""
        for held in self._in_force:
            if held.fault.kind is FaultKind.CLOSE_REUSED:
                return self._count_off({held.fault.kind: held})[held.fault.kind]
        return None

    def _count_off(self, hitting: dict[FaultKind, _InForce]) -> Taken:
        for held in hitting.values():
            held.count_off()
        self._in_force = [held for held in self._in_force if held.left != 0]
        return {kind: held.fault for kind, held in hitting.items()} or UNHURT

    def _end(self, ended: list[_InForce]) -> None:
        self._in_force = [held for held in self._in_force if held not in ended]
        for held in ended:
            self._on_clear(held.fault)


def _hits_requests(fault: Fault) -> bool:
    return fault.kind not in REPLICA_WIDE and fault.kind is not FaultKind.CLOSE_REUSED


class FaultOrder(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /sim/faults. `clear` comes first; "all" clears everything."""

    set: list[Fault] = []
    clear: list[FaultKind] | str = []
    replica: int | None = None
    """Index among the replicas of this process; None: the one that was asked."""


def read_order(body: bytes) -> FaultOrder:
    """Read the body of POST /sim/faults.

    Raises:
        ValueError: not JSON, an unknown kind or field, a value out of range.
    """
    order = msgspec.json.decode(body, type=FaultOrder)
    if isinstance(order.clear, str) and order.clear != "all":
        raise ValueError('clear is a list of kinds or "all"')
    return order


def listing(faults: Iterable[Fault]) -> bytes:
    """Return the JSON of GET /sim/faults."""
    return msgspec.json.encode({"faults": list(faults)})
