"""What one client is sent: a replica's answer, an error of the router's own, or comments while it waits for either."""

from __future__ import annotations

import asyncio

from router.proxy import report
from router.proxy.answer import Answer
from router.proxy.early import EarlyStream
from router.proxy.errors import RouterError, error_event
from router.proxy.incoming import Incoming
from router.proxy.relay import Body, Write
from router.proxy.report import Ended


class Reply:
    """The client's side of one request."""

    __slots__ = ("_body", "_early", "_incoming", "_transport")

    def __init__(self, transport: asyncio.Transport, incoming: Incoming) -> None:
        self._transport = transport
        self._incoming = incoming
        self._body: Body | None = None
        self._early: EarlyStream | None = None

    def status(self, error: RouterError | None, answered: int | None) -> int | None:
        """Return the status that the client was or will be sent. `answered`: the replica's."""
        if self._early is not None:
            return EarlyStream.STATUS
        return error.status if error is not None and self._body is None else answered

    def pass_on(self, ended: Ended, answer: Answer, data: bytes) -> Write:
        """Send a replica's head and the first bytes of its body; return how the rest is written."""
        if self._early is not None:
            return self._early.go_on(answer, data)
        incoming, length = self._incoming, answer.fields.get(b"content-length")
        headless = incoming.method == b"HEAD"
        self._body = body = Body(self._transport, answer.framing, length, incoming.http_1_0, headless)
        body.begin(report.answer_lines(ended, answer, body.framing_line), data)
        return body.write

    def end(self) -> None:
        """End what was passed on, now that it has ended as it announced."""
        if self._early is not None:
            self._early.end()
        elif self._body is not None:
            self._body.end()

    def cut(self, error: RouterError, answer: Answer) -> None:
        """End what was passed on in part: an event where it is a stream, and nothing that looks like an end."""
        if self._early is not None:
            self._early.cut(error_event(error, self._incoming.path), answer.between_events)
        elif self._body is None or not answer.streams_events:
            self._transport.abort()
        else:
            self._body.cut(error_event(error, self._incoming.path), answer.between_events)

    def refuse(self, ended: Ended, error: RouterError, message: str | None, retry_after_s: float | None) -> bool:
        """Send an error of the router's own; return whether the connection may go on."""
        if self._early is not None:
            self._early.cut(error_event(error, self._incoming.path, message), between_chunks=True)
            return False
        self._transport.write(report.error_answer(ended, error, message, retry_after_s))
        return ended.keep_alive

    def keep_open(self, ended: Ended, now: float, interval_s: float) -> None:
        """Write a comment, where nothing has been written for so long."""
        if self._early is None:
            incoming = self._incoming
            if now - ended.started_s < interval_s or incoming.http_1_0 or incoming.method == b"HEAD":
                return
            lines = report.own_lines(ended.request_id, None) + ended.extra_lines
            self._early = EarlyStream(self._transport, incoming.path, lines, close=not ended.keep_alive)
        self._early.keep_open(now, interval_s)
