"""Touches: one-token requests that renew idle sessions' blocks while a replica has nothing else to do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import httpx

from router.adapters.touch_metrics import TouchCounts
from router.app.roster.touch_bodies import is_session, touch_body
from router.core.ticket import Settlement, Ticket
from router.core.touching.offers import Offer
from router.core.touching.touching import Touch, Touching
from router.core.types import ReplicaId, Usage
from router.ports import Endpoint
from router.proxy.feedback import read_usage
from router.proxy.plane import Plane

LOOK_S = 1.0
"""How often it is looked for a session to be touched: blocks stay for tens of seconds at the least."""

REQUEST_S = 10.0
"""How long a touch may take: one that takes longer does not renew blocks, but computes them."""

LOGGER = logging.getLogger("warmroute.fleet")


class Body(NamedTuple):
    """A client's request, to be made a touch of."""

    path: str
    data: bytes


class _Answer(NamedTuple):
    result: str
    usage: Usage = Usage()
    keep: bool = True
    """Whether the session may be touched again."""


class Toucher:
    """Tells the core what clients send, and does what it says. Bodies are in its memory only, and in no log."""

    def __init__(
        self,
        plane: Plane,
        client: httpx.AsyncClient,
        endpoints: Mapping[ReplicaId, Endpoint],
        touching: Touching[Body],
    ) -> None:
        self.touching = touching
        self.counts = TouchCounts(touching.profit, lambda: touching.kept_bytes, plane.clock)
        self._plane, self._client, self._endpoints = plane, client, endpoints
        self._tasks: dict[ReplicaId, asyncio.Task[_Answer]] = {}
        touching.interrupt = self._interrupt

    # What clients send: see `ports.Keeper`

    def sent(self, ticket: Ticket, path: str, body: bytes) -> None:
        """A client's request is being sent."""
        self.touching.sent(ticket, Body(path, body) if is_session(path, body) else None, len(body), self._plane.clock())

    def settled(self, ticket: Ticket, settlement: Settlement, usage: Usage) -> None:
        """It has ended."""
        self.touching.settled(ticket, settlement, usage, self._plane.clock())

    # Touches

    async def run(self) -> None:
        """Touch what is due, until cancelled; touches under way end with it."""
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                self.look()
        finally:
            await self.stop()

    def look(self) -> None:
        """Begin what is due now, and judge whether touches pay."""
        plane, now = self._plane, self._plane.clock()
        if self.touching.profit.judge(len(plane.fleet), now):
            LOGGER.warning("touches cost more than they save: none are made for a while. %s", self._sentence())
        for replica in list(plane.fleet):
            offer = self.touching.due(replica, now)
            if offer is not None:
                self.begin(offer, now)

    def _sentence(self) -> str:
        profit = self.touching.profit
        return (
            f"Seconds of prefill since the start: {profit.saved_s:.1f} saved, {profit.lost_s:.1f} lost, "
            f"{profit.spent_s:.1f} spent"
        )

    def begin(self, offer: Offer[Body], now: float) -> None:
        """Send a touch; its end is counted when it comes."""
        kept = offer.kept
        data = touch_body(kept.body.path, kept.body.data, kept.session)
        if data is None:
            self.touching.shelf.pop(kept.session)
            return
        touch = self.touching.begin(offer, now)
        if touch is None:
            return
        task = asyncio.create_task(self._ask(kept.replica, kept.body.path, data))
        self._tasks[kept.replica] = task
        task.add_done_callback(partial(self._ended, touch))

    def _ended(self, touch: Touch[Body], task: asyncio.Task[_Answer]) -> None:
        """Count a touch out. A task that is ended before its first step would not do it itself."""
        replica_id = touch.kept.replica
        answer = _answer_of(task)
        if self._tasks.get(replica_id) is task:
            del self._tasks[replica_id]
        self.touching.end(touch, self._plane.clock(), answer.result == "done", answer.keep, answer.usage)
        if self._plane.fleet.get(replica_id) is touch.replica:
            self.counts.count(replica_id, answer.result)

    async def _ask(self, replica_id: ReplicaId, path: str, data: bytes) -> _Answer:
        endpoint = self._endpoints[replica_id]
        headers = {"content-type": "application/json"}
        if endpoint.rank is not None:
            headers["x-data-parallel-rank"] = str(endpoint.rank)
        try:
            async with asyncio.timeout(REQUEST_S):
                answer = await self._client.post(endpoint.url + path, content=data, headers=headers, timeout=REQUEST_S)
        except (TimeoutError, httpx.HTTPError):
            return _Answer("failed", keep=False)  # probes say whether the replica is to blame
        if answer.is_success:
            return _Answer("done", read_usage(b"", answer.content))
        refused = 400 <= answer.status_code < 500 and answer.status_code != httpx.codes.TOO_MANY_REQUESTS
        return _Answer("refused" if refused else "failed", keep=False)

    def _interrupt(self, touch: Touch[Body], now: float) -> None:
        """Close its connection: the engine then gives it up."""
        self._tasks[touch.kept.replica].cancel()

    async def stop(self) -> None:
        """End what is under way."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def forget(self, replica_id: ReplicaId) -> None:
        """Drop what is known of a replica that left the fleet."""
        task = self._tasks.get(replica_id)
        if task is not None:
            task.cancel()
        self.touching.forget(replica_id)
        self.counts.forget(replica_id)

    def describe(self) -> dict[str, Any]:
        """Describe touches for the admin API; seconds are of prefill, since the start."""
        profit = self.touching.profit
        results: dict[str, int] = {}
        for (_, result), count in self.counts.touches.items():
            results[result] = results.get(result, 0) + count
        return {
            "touches": results,
            "sessions": len(self.touching.shelf),
            "kept_bytes": self.touching.kept_bytes,
            "hits": profit.hits,
            "misses": profit.misses,
            "saved_s": round(profit.saved_s, 3),
            "lost_s": round(profit.lost_s, 3),
            "spent_s": round(profit.spent_s, 3),
            "profit_s": round(profit.profit_s, 3),
            "resting": profit.resting(self._plane.clock()),
        }


def _answer_of(task: asyncio.Task[_Answer]) -> _Answer:
    if task.cancelled():
        return _Answer("interrupted")
    error = task.exception()
    if error is None:
        return task.result()
    LOGGER.error("a touch failed", exc_info=error)
    return _Answer("failed", keep=False)
