"""Warms a replica up that comes in cold: one-token requests for the prefixes that most sessions share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from router.adapters.warm_up_metrics import WarmUpCounts
from router.app.roster.openings import opening_of
from router.core.replica import Replica
from router.core.ticket import Ticket
from router.core.types import Outcome, OutcomeKind, ReplicaId, RoutingRequest
from router.core.warmth import Opening, Warmth
from router.ports import Endpoint, own_fault
from router.proxy.feedback import read_usage
from router.proxy.plane import Plane

LEAST_BYTES = 512
"""Shorter prefixes, under about 128 tokens, are computed faster than a request is made."""

LARGEST_BODY_BYTES = 2 << 20
"""Larger requests are not taken apart, which would hold every stream up for milliseconds; a smaller one will come."""

REQUEST_S = 60.0
"""How long one request may take: a prefix of 250,000 tokens on a slow engine that has other work too."""

LOGGER = logging.getLogger("warmroute.fleet")


@dataclass(slots=True)
class WarmUp:
    """How one replica was warmed up."""

    budget_tokens: int
    running: bool = True
    tokens: int = 0
    """Prompt tokens sent."""
    results: dict[str, int] = field(default_factory=dict)
    """Requests by result: done; refused, with a 4xx; busy, with a 429 or 503; failed."""

    @property
    def left_tokens(self) -> int:
        """What may still be sent."""
        return max(0, self.budget_tokens - self.tokens)

    def count(self, result: str, tokens: int) -> None:
        """Count a request."""
        self.results[result] = self.results.get(result, 0) + 1
        self.tokens += tokens


class Warming:
    """Remembers the hottest prefixes of the requests it is shown, and sends them to replicas that have none."""

    def __init__(
        self,
        plane: Plane,
        client: httpx.AsyncClient,
        endpoints: Mapping[ReplicaId, Endpoint],
        budget_tokens: int,
        counts: WarmUpCounts,
    ) -> None:
        """`budget_tokens`: prompt tokens that a replica is sent at the most, each time it comes in cold."""
        self.counts = counts
        self._plane = plane
        self._client = client
        self._endpoints = endpoints
        self._budget_tokens = budget_tokens
        self._warmth = Warmth()
        self._done: dict[ReplicaId, WarmUp] = {}

    def opening_seen(self, request: RoutingRequest, body: bytes) -> None:
        """Take note of how a request begins. `request` is `body` as routing reads it."""
        prompt = request.prompt
        if prompt is None or not prompt.opening_blocks:
            return
        last = prompt.opening_blocks - 1
        if prompt.ends_bytes[last] < LEAST_BYTES:
            return
        key = prompt.hashes[last]
        if self._warmth.seen(key, self._plane.clock()) and len(body) <= LARGEST_BODY_BYTES:
            self._warmth.keep(key, opening_of(request, body))

    def describe(self, replica_id: ReplicaId) -> dict[str, Any] | None:
        """Describe a replica's last warm-up for the admin API; None where there was none."""
        done = self._done.get(replica_id)
        if done is None:
            return None
        return {
            "running": done.running,
            "budget_tokens": done.budget_tokens,
            "tokens": done.tokens,
            "requests": dict(done.results),
        }

    def forget(self, replica_id: ReplicaId) -> None:
        """Drop what is shown of a replica that left the fleet."""
        self._done.pop(replica_id, None)
        self.counts.forget(replica_id)

    async def warm_up(self, replica_id: ReplicaId) -> None:
        """Send a replica the hottest prefixes, one after the other, until it has them or the budget is spent."""
        openings = self._warmth.hottest()
        if not openings:
            return
        warm_up = self._done[replica_id] = WarmUp(self._budget_tokens)
        try:
            for opening in openings:
                replica = self._plane.fleet.get(replica_id)
                if replica is None or not _fit(replica) or not await self._send_if_new(replica, opening, warm_up):
                    break
        finally:
            warm_up.running = False
            if replica_id not in self._plane.fleet:
                self.forget(replica_id)
        if warm_up.results:
            results = ", ".join(f"{count} {result}" for result, count in warm_up.results.items())
            LOGGER.info("replica %s is warmed up with %d prompt tokens: %s", replica_id, warm_up.tokens, results)

    async def _send_if_new(self, replica: Replica, opening: Opening, warm_up: WarmUp) -> bool:
        """Send a prefix if the replica lacks it and the budget allows; return whether to go on."""
        prompt = opening.request.prompt
        if prompt is None or not replica.serves(opening.model):
            return True
        size = self._plane.fleet.size_of(opening.model)
        if prompt.total_bytes / size.bytes_per_token > warm_up.left_tokens:
            return True  # a smaller one may do
        if replica.mirror.match(prompt.hashes) >= prompt.opening_blocks:
            return True
        outcome = await self._send(replica, opening)
        result = _result(outcome)
        tokens = 0 if outcome.status is None else outcome.usage.prompt_tokens or 0
        warm_up.count(result, tokens)
        self.counts.count(replica.replica_id, result, tokens)
        return result in ("done", "refused")

    async def _send(self, replica: Replica, opening: Opening) -> Outcome:
        """Send one request, counted in and out as a client's is."""
        plane, now = self._plane, self._plane.clock()
        ticket = plane.fleet.route_to(replica.replica_id, opening.request, now)
        # Sessions are spread by the work that replicas had of late; this is to draw them, not to keep them off.
        replica.recent.take_back(ticket.entry.prefill_s, now)
        if plane.store is not None:
            plane.store.opened(ticket)
        outcome = Outcome(OutcomeKind.CLIENT_LEFT)
        try:
            outcome = await self._ask(ticket, opening)
        finally:
            plane.settle(ticket, outcome)
        return outcome

    async def _ask(self, ticket: Ticket, opening: Opening) -> Outcome:
        endpoint = self._endpoints[ticket.replica.replica_id]
        headers = {"content-type": "application/json"}
        if endpoint.rank is not None:
            headers["x-data-parallel-rank"] = str(endpoint.rank)
        try:
            async with asyncio.timeout(REQUEST_S):
                answer = await self._client.post(
                    endpoint.url + opening.path, content=opening.body, headers=headers, timeout=REQUEST_S
                )
        except (TimeoutError, httpx.TimeoutException):
            return Outcome(OutcomeKind.CLIENT_LEFT)
        except httpx.ConnectError as error:
            return Outcome(OutcomeKind.REFUSED if own_fault(error) is None else OutcomeKind.CLIENT_LEFT)
        except httpx.HTTPError:
            return Outcome(OutcomeKind.RESET)
        if answer.is_success:
            self._plane.first_byte(ticket, self._plane.clock())
        return Outcome(_kind(answer.status_code), answer.status_code, read_usage(b"", answer.content))


def _fit(replica: Replica) -> bool:
    return replica.health.up and not replica.report.asleep


def _kind(status: int) -> OutcomeKind:
    if status in (429, 503):
        return OutcomeKind.BUSY
    return OutcomeKind.ERRORED if status >= 500 else OutcomeKind.COMPLETED


def _result(outcome: Outcome) -> str:
    if outcome.kind is OutcomeKind.BUSY:
        return "busy"
    if outcome.kind is OutcomeKind.COMPLETED and outcome.status is not None:
        return "done" if outcome.status < 400 else "refused"
    return "failed"
