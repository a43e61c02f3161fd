"""Questions of requests that wait: all that have come up are put in one command, and each has its own deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from redis.asyncio import Redis

from router.adapters.cancellation import stop_if_cancelled
from router.adapters.redis_store.counts import Counts
from router.adapters.redis_store.encoding import Names, found
from router.adapters.redis_store.link import FAILURES, Link
from router.adapters.redis_store.patience import GRACE_S, STALL_S
from router.core.landmarks import Question, Recollection

MAX_KEYS = 512
"""Asked at once: Redis takes a tenth of a millisecond for so many."""

ALIVE_S = 1.0
"""A Redis that has answered in time since is most likely held up for a moment: one more deadline is waited then, since
a history that has to be computed again costs a hundred times as much. A heartbeat's answer is never older than that."""

AGAIN_S = 0.001
"""Before a question that must find something is asked again, until its deadline: the news may be on its way."""

Taught = Callable[[bool], None]


class _Asked:
    """A question that somebody waits for, until it is answered or its time is up."""

    __slots__ = ("names", "question", "then", "timer")

    def __init__(self, question: Question, names: list[bytes], then: Taught) -> None:
        self.question = question
        self.names = names
        self.then: Taught | None = then
        self.timer: asyncio.TimerHandle | None = None

    def end(self, taught: bool) -> bool:
        """Let the request go on; return whether it was still waiting."""
        then, self.then = self.then, None
        if self.timer is not None:
            self.timer.cancel()
        if then is not None:
            then(taught)
        return then is not None


class Asking:
    """Asks Redis on behalf of requests."""

    def __init__(
        self,
        link: Link,
        names: Names,
        learn: Callable[[Question, Recollection], bool],
        counts: Counts,
        deadline_s: float,
    ) -> None:
        """`learn` takes an answer in and tells whether it taught anything."""
        self._link = link
        self._names = names
        self._learn = learn
        self._counts = counts
        self._deadline_s = deadline_s
        self._waiting: list[_Asked] = []
        self._wake = asyncio.Event()

    def ask(self, question: Question, then: Taught) -> None:
        """Call `then` once, within two deadlines (see `ALIVE_S`): with whether something was learnt."""
        names = [*map(self._names.home, question.homes)]
        if question.prompt is not None:
            names += [self._names.turn(question.prompt.hashes[at - 1]) for at in question.positions]
        asked = _Asked(question, names, then)
        self._wait(asked, may_be_prolonged=True)
        self._put(asked)

    def _wait(self, asked: _Asked, may_be_prolonged: bool) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + max(0.0, self._deadline_s - GRACE_S)
        asked.timer = loop.call_at(due_s, self._expire, asked, due_s, may_be_prolonged)

    def _put(self, asked: _Asked) -> None:
        self._waiting.append(asked)
        self._wake.set()

    def _expire(self, asked: _Asked, due_s: float, may_be_prolonged: bool) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        stalled = now_s - due_s > STALL_S  # we were busy, so Redis has not had its time
        if may_be_prolonged and (stalled or now_s - self._link.quick_s < ALIVE_S):
            self._wait(asked, may_be_prolonged=False)
        else:
            asked.timer = loop.call_later(GRACE_S, self._give_up, asked, stalled)

    def _give_up(self, asked: _Asked, stalled: bool) -> None:
        if asked.end(taught=False):
            self._counts.result("late")
            if not stalled:
                self._link.late(self._deadline_s)

    async def ask_forever(self, clock: Callable[[], float]) -> None:
        """Send what has come up, wait for the answer, and again."""
        while True:
            await self._wake.wait()
            batch = self._take()
            client = self._link.client
            if client is None:
                self._fail(batch)
                continue
            sent_s = clock()
            try:
                values = await self._fetch(client, batch)
            except FAILURES as error:
                self._fail(batch)
                await self._link.failed(client, error)
                stop_if_cancelled()
                continue
            stop_if_cancelled()
            self._counts.read(clock() - sent_s)
            self._answer(batch, values)

    def _take(self) -> list[_Asked]:
        batch, keys = [], 0
        while self._waiting and keys < MAX_KEYS:
            batch.append(self._waiting.pop(0))
            keys += len(batch[-1].names)
        if not self._waiting:
            self._wake.clear()
        return batch

    async def _fetch(self, client: Redis, batch: list[_Asked]) -> list[bytes | None]:
        names = [name for asked in batch for name in asked.names]
        values: list[bytes | None] = await client.execute_command("MGET", *names)  # type: ignore[no-untyped-call]
        return values

    def _answer(self, batch: list[_Asked], values: list[bytes | None]) -> None:
        start = 0
        for asked in batch:
            recollection = self._read(asked, values[start : start + len(asked.names)])
            start += len(asked.names)
            taught = self._learn(asked.question, recollection)  # a late answer, too: the next turn will want it
            if not taught and asked.question.must_be_found and asked.then is not None:
                asyncio.get_running_loop().call_later(AGAIN_S, self._put, asked)
            elif asked.end(taught):
                self._link.quick()
                self._counts.result("found" if taught else "nothing")

    def _read(self, asked: _Asked, values: list[bytes | None]) -> Recollection:
        question, count = asked.question, len(asked.question.homes)
        homes = zip(question.homes, values[:count], strict=True)
        known = [(key, value.decode(errors="replace")) for key, value in homes if value is not None]
        return Recollection(found(question, values[count:], self._names.keyring), known)

    def _fail(self, batch: list[_Asked]) -> None:
        for asked in batch:
            if asked.end(taught=False):
                self._counts.result("failed")
