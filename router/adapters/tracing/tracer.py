"""Traces requests: continues the clients' traces, hands them on to the engines, and makes the spans at the end."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Sequence

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags, TraceState

from router import __version__
from router.adapters.tracing.context import Origin, new_span_id, origin
from router.adapters.tracing.export import SpanExport
from router.adapters.tracing.spans import Part, Tried, before_attempts, of_attempt, of_request
from router.core.ticket import Ticket
from router.core.types import Outcome
from router.ports import RequestRecord, Trace

CONTENT_EVENT = "warmroute.first_content"

_SCOPE = InstrumentationScope("warmroute", __version__)
_UNSET, _ERROR = Status(StatusCode.UNSET), Status(StatusCode.ERROR)
_NO_STATE = TraceState()
_NS = 1_000_000_000


class _Service(Resource):
    """What the spans are of. The SDK hashes it anew for every span, by way of JSON, which costs as much as a hop."""

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def _service() -> _Service:
    """Describe this process; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have the last word."""
    own = Resource(
        {
            "service.name": "warmroute",
            "service.version": __version__,
            "service.instance.id": str(uuid.uuid4()),
            "process.pid": os.getpid(),
        }
    )
    named = own.merge(OTELResourceDetector().detect())
    return _Service(named.attributes, named.schema_url)


class OtlpTracer:
    """Makes spans with times that are past already, all at a request's end, and gives them to the export."""

    def __init__(self, export: SpanExport, ratio: float, scheme: str, clock: Callable[[], float]) -> None:
        """`ratio`: chance that a trace which begins here is sampled; `scheme`: http or https; `clock`: the plane's."""
        self.export = export
        self.ratio = ratio
        self.clock = clock
        self.scheme = scheme
        self.service = _service()

    def begin(self, headers: Sequence[tuple[bytes, bytes]]) -> Trace:
        """See `router.ports.Tracer`."""
        found = origin(headers, self.ratio)
        return _Sampled(self, found) if found.sampled else _Unsampled(found)


class _Unsampled:
    """A trace of which nobody wants spans: it is passed on."""

    __slots__ = ("lines",)

    def __init__(self, found: Origin) -> None:
        self.lines = found.lines(found.parent_id or new_span_id())

    def attempt_ended(self, ticket: Ticket, sent_s: float | None, status: int | None, outcome: Outcome) -> None:
        """There is no span of it."""

    def finished(self, record: RequestRecord, started_s: float) -> None:
        """There is no span of it."""


class _Sampled:
    """A request whose spans are made."""

    __slots__ = ("_attempt_id", "_origin", "_span_id", "_tracer", "_tried")

    def __init__(self, tracer: OtlpTracer, found: Origin) -> None:
        self._tracer = tracer
        self._origin = found
        self._span_id = new_span_id()
        self._attempt_id = 0
        self._tried: list[Tried] = []

    @property
    def lines(self) -> bytes:
        """See `router.ports.Trace`."""
        self._attempt_id = self._attempt_id or new_span_id()
        return self._origin.lines(self._attempt_id)

    def attempt_ended(self, ticket: Ticket, sent_s: float | None, status: int | None, outcome: Outcome) -> None:
        """See `router.ports.Trace`."""
        span_id, self._attempt_id = self._attempt_id or new_span_id(), 0
        begun_s, ended_s = ticket.entry.dispatched_s, self._tracer.clock()
        self._tried.append(
            Tried(span_id, ticket.decision, begun_s, sent_s, ticket.first_byte_s, ended_s, status, outcome.kind)
        )

    def finished(self, record: RequestRecord, started_s: float) -> None:
        """See `router.ports.Trace`."""
        tracer, found, tried = self._tracer, self._origin, self._tried
        making = _Making(tracer.service, found, time.time_ns() - int(tracer.clock() * _NS), started_s + record.total_s)
        request = making.context(self._span_id)
        parent = None if found.parent_id is None else making.context(found.parent_id, remote=True)
        below = [(part, new_span_id()) for part in before_attempts(record, tried, started_s)]
        below += [(of_attempt(one, number, record.method), one.span_id) for number, one in enumerate(tried)]
        spans = [making.span(of_request(record, started_s, tracer.scheme), request, parent)]
        spans += [making.span(part, making.context(span_id), request) for part, span_id in below]
        tracer.export.add(spans)


class _Making:
    """Makes the SDK's spans of one trace."""

    def __init__(self, service: Resource, found: Origin, offset_ns: int, last_s: float) -> None:
        """`offset_ns`: from the plane's clock to Unix time. `last_s`: nothing ends later."""
        self._service = service
        self._trace_id = found.trace_id
        self._flags = TraceFlags(found.flags)
        self._state = TraceState.from_header([found.state.decode("latin-1")]) if found.state else _NO_STATE
        self._offset_ns = offset_ns
        self._last_ns = self._unix_ns(last_s)

    def context(self, span_id: int, remote: bool = False) -> SpanContext:
        """Name a span of this trace."""
        return SpanContext(self._trace_id, span_id, remote, self._flags, self._state)

    def span(self, part: Part, context: SpanContext, parent: SpanContext | None) -> ReadableSpan:
        """Make a span that has ended.

        The SDK's own way, one that is started, filled and ended, takes 49 us with 12 attributes.
        """
        events = () if part.content_s is None else (Event(CONTENT_EVENT, None, self._unix_ns(part.content_s)),)
        return ReadableSpan(
            part.name,
            context,
            parent,
            self._service,
            part.attributes,
            events,
            kind=part.kind,
            status=_UNSET if part.error is None else _ERROR,
            start_time=self._unix_ns(part.begun_s),
            end_time=min(self._unix_ns(part.ended_s), self._last_ns),
            instrumentation_scope=_SCOPE,
        )

    def _unix_ns(self, at_s: float) -> int:
        return int(at_s * _NS) + self._offset_ns
