"""One attempt of a request on one replica: its connection, and its answer until it is passed on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from router.core.ticket import Ticket
from router.core.types import OutcomeKind
from router.ports import OWN_FAULTS
from router.proxy.answer import Answer
from router.proxy.headers import Headers
from router.proxy.held import HELD_STATUSES, HeldAnswer
from router.proxy.pool import Pool
from router.proxy.relay import Write
from router.proxy.silence import Silence
from router.proxy.upstream import Framing, UpstreamConnection


class Owner(Protocol):
    """The request that an attempt is made for."""

    @property
    def can_retry(self) -> bool:
        """Whether another replica may be asked if this one fails."""

    def upstream_request(self, pool: Pool) -> tuple[bytes, bytes, bool]:
        """Return head and body for a replica, and whether its answer has no body whatever it announces."""

    def commit(self, answer: Answer, data: bytes) -> Write:
        """Send the head and the first bytes of the body on; return how the rest is written."""

    def content_began(self) -> None:
        """The first content has come: the prefill is over."""

    def attempt_failed(self, kind: OutcomeKind) -> None:
        """The attempt has failed before anything of it was passed on."""

    def out_of_files(self, error: OSError) -> None:
        """No connection could be made, which is this side's fault (`ports.OWN_FAULTS`) and not the replica's."""

    def attempt_died(self, answer: Answer) -> None:
        """The replica was lost in the middle of what was passed on."""

    def attempt_completed(self, answer: Answer) -> None:
        """The whole answer has been passed on."""


class Attempt:
    """The listener of an upstream connection."""

    __slots__ = (
        "_abandoned", "_answer", "_clock", "_connecting", "_connection", "_content_began", "_held", "_owner", "_pool",
        "_write", "sent_s", "silence", "ticket",
    )  # fmt: skip

    def __init__(self, owner: Owner, ticket: Ticket, pool: Pool, clock: Callable[[], float]) -> None:
        self.ticket = ticket
        self.silence = Silence(clock())
        self.sent_s: float | None = None
        """When the request went out; None while there is no connection."""
        self._clock = clock
        self._owner = owner
        self._pool = pool
        self._connection: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._abandoned = False
        self._answer: Answer | None = None
        self._held: HeldAnswer | None = None
        self._write: Write | None = None
        self._content_began = False

    @property
    def status(self) -> int | None:
        """The status of the replica's answer; None while there is none."""
        return None if self._answer is None else self._answer.status

    @property
    def answer(self) -> Answer | None:
        """What has come of the replica's answer."""
        return self._answer

    @property
    def sent(self) -> bool:
        """Whether the replica has the request, and its answer is waited for or passing."""
        return self._connection is not None

    @property
    def connection(self) -> UpstreamConnection | None:
        """What the request was sent on; None while there is none."""
        return self._connection

    @property
    def passing(self) -> bool:
        """Whether part of the answer has been passed on."""
        return self._write is not None

    def begin(self) -> None:
        """Send the request, on a connection that is open if there is one."""
        connection = self._pool.take()
        if connection is None:
            self._connect()
        else:
            self._send(connection)

    def _connect(self) -> None:
        self._connection = None
        self._connecting = asyncio.get_running_loop().create_task(self._send_when_connected())

    async def _send_when_connected(self) -> None:
        try:
            connection = await self._pool.connect()
        except OSError as error:  # TimeoutError and SSLError are OSErrors too
            if not self._abandoned:
                self._not_connected(error)
            return
        if self._abandoned:
            self._pool.put(connection)  # the client left meanwhile
        else:
            self._send(connection)

    def _not_connected(self, error: OSError) -> None:
        if error.errno in OWN_FAULTS:
            self._owner.out_of_files(error)
        else:
            self._owner.attempt_failed(OutcomeKind.REFUSED)

    def _send(self, connection: UpstreamConnection) -> None:
        self._connection = connection
        self.sent_s = now = self._clock()
        self.silence.restart(now)
        head, body, expects_no_body = self._owner.upstream_request(self._pool)
        connection.start(self, head, body, expects_no_body)

    def abandon(self) -> None:
        """Close the connection: the engine sees its client leave, and frees the request's blocks."""
        self._abandoned = True
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abandon()

    def pause(self) -> None:
        """Stop reading."""
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        """Read on."""
        if self._connection is not None:
            self._connection.resume()

    # The upstream connection's listener

    def answer_head(self, status: int, headers: Headers, framing: Framing) -> None:
        """Keep the head until the body begins: vLLM sends it before it has begun to work."""
        self._answer = Answer(status, headers, framing)
        if status in HELD_STATUSES and self._owner.can_retry:
            self._held = HeldAnswer()

    def answer_bytes(self, data: bytes) -> None:
        """Write the body on, as it came."""
        self.silence.segments += 1
        answer = self._answer
        if answer is None:
            return
        if self._write is None:
            self._first_bytes(answer, data)
            return
        answer.tail.append(data)
        self._write(data)
        if not self._content_began:
            self._note_content(answer, data)

    def _first_bytes(self, answer: Answer, data: bytes) -> None:
        if self._held is not None:
            self._held.add(data)
            if self._held.full:
                self._pass_on(answer, self._held)
        elif answer.streams_events and self._owner.can_retry and answer.is_engine_error(data):
            self.abandon()
            self._owner.attempt_failed(OutcomeKind.RESET)
        else:
            self._commit(answer, data)
            self._note_content(answer, data)

    def _pass_on(self, answer: Answer, held: HeldAnswer) -> None:
        self._held = None
        self._commit(answer, held.data)

    def _commit(self, answer: Answer, data: bytes) -> None:
        self._write = self._owner.commit(answer, data)
        answer.begin(data)

    def _note_content(self, answer: Answer, data: bytes) -> None:
        if not answer.is_preamble(data):
            self._content_began = True
            self._owner.content_began()

    def answer_complete(self) -> None:
        """Settle; or let another replica be asked, if this one's error says that it did no work."""
        answer, held = self._answer, self._held
        if answer is None:
            return
        if held is not None:
            kind = held.retry_as(answer.status)
            if kind is not None:
                self._connection = None
                self._owner.attempt_failed(kind)
                return
            self._pass_on(answer, held)
        elif self._write is None:
            self._commit(answer, b"")
        self._owner.attempt_completed(answer)

    def answer_lost(self, error: Exception | None, began: bool) -> None:
        """Tell the owner, unless the engine had just closed a connection that was kept: then connect anew."""
        connection = self._connection
        if self._answer is not None and self._write is not None:
            self._owner.attempt_died(self._answer)
        elif connection is not None and connection.answers and not began:
            self._connect()  # closed by the engine as we wrote: nobody's failure
        else:
            self._connection = None
            self._owner.attempt_failed(OutcomeKind.RESET)

    def die(self) -> bool:
        """Give up what has been passed on in part; return whether there was anything."""
        self.abandon()
        if self._answer is None or self._write is None:
            return False
        self._owner.attempt_died(self._answer)
        return True
