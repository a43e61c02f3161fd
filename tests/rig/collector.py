"""A collector of traces by OTLP over HTTP, on the test's own event loop: keeps what it is sent, or has a fault."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from tests.rig.running import Router

SERVER, CLIENT, INTERNAL = (
    trace_pb2.Span.SPAN_KIND_SERVER, trace_pb2.Span.SPAN_KIND_CLIENT, trace_pb2.Span.SPAN_KIND_INTERNAL
)  # fmt: skip
UNSET, ERROR = trace_pb2.Status.STATUS_CODE_UNSET, trace_pb2.Status.STATUS_CODE_ERROR


@dataclass(frozen=True)
class Span:
    """One span as the collector got it. Ids are in hexadecimal digits; no parent is an empty one."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    trace_state: str
    begun_ns: int
    ended_ns: int
    status: int
    attributes: dict[str, Any]
    events: list[tuple[str, int]]
    resource: dict[str, Any] = field(repr=False)

    def __getitem__(self, name: str) -> Any:
        return self.attributes[name]


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, str(kind))


def _attributes(pairs: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    pair: KeyValue
    for pair in pairs:
        assert pair.key not in found, f"{pair.key} came twice"
        found[pair.key] = _value(pair.value)
    return found


def read(body: bytes) -> list[Span]:
    """The spans of one export."""
    return [
        Span(
            span.name,
            span.kind,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.trace_state,
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            span.status.code,
            _attributes(span.attributes),
            [(event.name, event.time_unix_nano) for event in span.events],
            _attributes(resource.resource.attributes),
        )
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


class Collector:
    """Listens on a free port. `status`: what it answers from now on; None: it reads, and says nothing."""

    def __init__(self) -> None:
        self.status: int | None = 200
        self.spans: list[Span] = []
        self.bodies: list[bytes] = []
        self.targets: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.exports = 0
        self.port = 0
        self.came = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await self._export(reader, writer)
        self._writers.discard(writer)
        writer.close()

    async def _export(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
        body = await reader.readexactly(int(fields["content-length"]))
        self.exports += 1
        self.targets.append(head[0])
        self.headers.append(fields)
        if self.status == 200:
            self.spans += read(body)
            self.bodies.append(body)
        self.came.set()
        if self.status is not None:
            writer.write(b"HTTP/1.1 %d X\r\ncontent-length: 0\r\n\r\n" % self.status)

    async def all_of(self, router: Router) -> list[Span]:
        """The spans of a router's requests until now, which are its last ones: its export ends."""
        await router.idle()
        assert router.house.tracer is not None
        await router.house.tracer.export.close()
        return self.spans
