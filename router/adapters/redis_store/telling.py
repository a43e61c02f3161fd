"""Write-behind: what this router does is told and written down in batches, behind its requests' backs."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from router.adapters.cancellation import stop_if_cancelled
from router.adapters.redis_store.counts import Counts
from router.adapters.redis_store.encoding import WRITE_SCRIPT, Names, encode, pack
from router.adapters.redis_store.link import FAILURES, RETRY_S, Link
from router.adapters.redis_store.options import Options
from router.adapters.redis_store.outbox import Outbox, Write
from router.adapters.redis_store.patience import Patience
from router.adapters.redis_store.state import State
from router.core.fleet import Fleet
from router.core.news import Bulletin, News
from router.core.replica import IDLE, Load
from router.core.types import ReplicaId

HEARTBEAT_S = 0.9
"""A third of the time after which the others take this router for gone."""

SPACING_S = 0.003
"""Between two batches: at a thousand requests a second each has a few of them."""

SCRIPT_ID = hashlib.sha1(WRITE_SCRIPT, usedforsecurity=False).hexdigest()


class Telling:
    """The sending loop. It also keeps the connection: the other loops use the one that it has opened."""

    def __init__(
        self,
        link: Link,
        names: Names,
        router: str,
        fleet: Fleet,
        oldest_open: Callable[[], int],
        counts: Counts,
        options: Options,
        clock: Callable[[], float],
    ) -> None:
        """`oldest_open`: number of the oldest ticket not settled yet, or of the next one."""
        self.outbox = Outbox()
        self._link = link
        self._names = names
        self._router = router
        self._fleet = fleet
        self._oldest_open = oldest_open
        self._counts = counts
        self._options = options
        self._clock = clock
        self._told: dict[ReplicaId, Load] = {}
        self._number = 0
        self._heartbeat_s = float("-inf")
        self._script_known = False
        self._wake = asyncio.Event()
        self.tried = asyncio.Event()
        """Set when the first attempt to reach Redis has ended, well or not."""
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        """When the timer wakes; uvloop's handles do not tell."""

    def wake(self, within_s: float) -> None:
        """Send what has come up, together with whatever comes up within some time."""
        loop = asyncio.get_running_loop()
        due_s = loop.time() + within_s
        if self._timer is not None and self._due_s <= due_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due_s = loop.call_at(due_s, self._time_is_up), due_s

    def _time_is_up(self) -> None:
        self._timer = None
        self._wake.set()

    def tell_all(self) -> None:
        """Let the next bulletin be a whole one: somebody does not know what came before."""
        self._heartbeat_s = float("-inf")

    async def tell_forever(self) -> None:
        """Keep the connection and send, until cancelled."""
        while True:
            client: Redis | None = None
            try:
                client = await self._link.open()
                await self._send(client)
            except FAILURES as error:
                self.tell_all()
                await self._link.failed(client, error)
            self.tried.set()
            await self._pause()

    async def _pause(self) -> None:
        """Wait for something to send; while all is not well, for the next attempt."""
        stop_if_cancelled()
        state = self._link.condition.state
        if state in (State.DOWN, State.REFUSING):
            await asyncio.sleep(RETRY_S)
            return
        await asyncio.sleep(SPACING_S)
        if not len(self.outbox):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S if state is State.UP else RETRY_S):
                    await self._wake.wait()
        self._wake.clear()

    async def close(self) -> None:
        """Send what is left and say good-bye, if Redis takes it."""
        with contextlib.suppress(*FAILURES):
            client = self._link.client
            while client is not None and len(self.outbox):
                await self._send(client)
            if client is not None:
                await self._send(client, leaving=True)
        await self._link.drop(self._link.client)

    async def _send(self, client: Redis, leaving: bool = False) -> None:
        """Send one batch. Raises one of `FAILURES`; what was not taken is in the outbox again."""
        now = self._clock()
        whole = leaving or self._link.condition.state is not State.UP or now - self._heartbeat_s >= HEARTBEAT_S
        news, writes = self.outbox.take_news(), self.outbox.take_writes()
        loads = [] if leaving else self._loads(whole, now)
        if whole:
            self._heartbeat_s = now  # before it is sent: somebody may ask for another one meanwhile
        calls: list[tuple[Any, ...]] = []
        if whole or news or loads:
            oldest_open = 0 if self.outbox.has_news else self._oldest_open()  # ends of those in between are to come
            bulletin = Bulletin(oldest_open, whole, loads, news, leaving)
            self._number += 1
            packed = pack(self._router, self._number, bulletin, self._names.keyring)
            calls.append(("PUBLISH", self._names.channel, packed))
        if writes:
            calls.append(self._script_call(writes))
        if not calls:
            return
        patience = Patience(self._link, self._options.deadline_s)
        try:
            results = await self._execute(client, calls)
        except BaseException:
            patience.stop()
            self.outbox.give_back(news, writes)
            raise
        patience.stop()
        self._take_results(results, news, writes)
        patience.answered()

    async def _execute(self, client: Redis, calls: list[tuple[Any, ...]]) -> list[Any]:
        pipeline = client.pipeline(transaction=False)
        for call in calls:
            pipeline.execute_command(*call)
        sent_s = self._clock()
        results: list[Any] = await pipeline.execute(raise_on_error=False)
        self._counts.sent(len(calls), self._clock() - sent_s)
        return results

    def _script_call(self, writes: list[Write]) -> tuple[Any, ...]:
        names = [write.name for write in writes]
        script = ("EVALSHA", SCRIPT_ID) if self._script_known else ("EVAL", WRITE_SCRIPT)
        ttl_s = self._options.ttl_s
        keep_s = [min(ttl_s, write.keep_s or ttl_s) for write in writes]
        return *script, len(names), *names, encode([write.operation for write in writes]), ttl_s, encode(keep_s)

    def _take_results(self, results: list[Any], news: list[News], writes: list[Write]) -> None:
        """Look at what was answered. Raises the first error that is one of Redis itself."""
        written = results[-1] if writes else []
        if isinstance(written, NoScriptError):  # Redis was restarted, or its scripts were flushed
            self._script_known = False
            self.outbox.give_back([], writes)
            results = results[:-1]
        elif isinstance(written, Exception):
            self.outbox.give_back([], writes)
        elif writes:
            self._script_known = True
            self._keep_homes(writes, written)
        published = results[0] if len(results) > bool(writes) else None
        if isinstance(published, Exception):
            self.outbox.give_back(news, [])
        for result in results:
            if isinstance(result, Exception):
                raise result

    def _keep_homes(self, writes: list[Write], kept: list[Any]) -> None:
        """Take over the homes that another router has moved before us."""
        for number, replica in zip(kept[::2], kept[1::2], strict=True):
            session, replica_id = writes[number - 1].home, replica.decode(errors="replace")
            if session is not None and replica_id in self._fleet:
                self._fleet.index.homes.put(session, replica_id)

    def _loads(self, whole: bool, now: float) -> list[tuple[ReplicaId, Load]]:
        """Return what is under way on each replica: all that is not idle, or what has changed since it was told."""
        told, loads = {} if whole else self._told, []
        present = {}
        for replica in self._fleet:
            replica.ledger.expire(now)
            present[replica.replica_id] = load = replica.load
            if load != told.get(replica.replica_id, IDLE):
                loads.append((replica.replica_id, load))
        self._told = present
        return loads
