"""What the house needs from outside: engines to be read, and listeners to be told."""

from __future__ import annotations

from typing import Protocol

import msgspec

from router.core.types import Decision, EngineReport, OutcomeKind, ReplicaId, Usage


class RequestRecord(msgspec.Struct, frozen=True, gc=False):
    """One finished request, as the router saw it. Times in seconds from the whole request's arrival."""

    request_id: str
    method: str
    path: str
    model: str
    shape: str
    streaming: bool
    status: int
    """Status sent to the client; 499 when it left before one was sent."""
    outcome: OutcomeKind | None
    """How the last attempt ended; None where there was none."""
    decision: Decision | None
    attempts: int
    usage: Usage
    overhead_s: float
    """The router's own part before the request was handed to a connection: reading it and deciding."""
    ttft_s: float | None
    """To the first byte of the answer's body that carries content."""
    total_s: float
    error: str | None
    """Code of the router's own error, if it gave one."""


class Observer(Protocol):
    """Is told what happened, after it happened; must not wait and must not raise."""

    def request_finished(self, record: RequestRecord) -> None:
        """A request is over."""

    def attempt_failed(self, replica: ReplicaId, kind: OutcomeKind) -> None:
        """An attempt failed on a replica; the request may go on elsewhere."""


class EngineProbe(Protocol):
    """Reads one engine."""

    async def report(self) -> EngineReport:
        """Read its metrics.

        Raises ConnectionRefusedError when nothing listens there, TimeoutError or OSError when it can't be read.
        Numbers that can't be read are None in the report.
        """

    async def models(self) -> list[dict[str, object]]:
        """List its models as the engine describes them. Raises as `report` does."""
