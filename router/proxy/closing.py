"""The waiting and ending half of a client's connection: between two requests, and from its last answer to its close."""

from __future__ import annotations

from typing import Any

from router.proxy.door import turned_away
from router.proxy.receiving import Receiver

LINGER_S = 2.0
"""How long a connection whose request was refused early is read on and discarded: closing it with unread bytes makes
the kernel reset it, and the client may never see the answer."""

LINGERING = 64
"""Connections too many that are told so at a time; more are only closed."""


class Closing(Receiver):
    """Waits for requests and ends; what comes in between is `router.proxy.downstream.Downstream`'s."""

    lingering: set[Closing]
    """Connections too many that have their answer and are not closed yet."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._idle_since_s = 0.0
        self._unread_bytes = 0
        """What its client had not taken of its last answer when that was last looked at."""

    def _turn_away(self) -> None:
        self._discarding = True
        if len(self.lingering) < LINGERING:
            self.lingering.add(self)
            self._finish_writing(turned_away())
        else:
            self.transport.write(turned_away())
            self.transport.close()

    def _finish_writing(self, last: bytes = b"") -> None:
        """End the connection so that the client can read what was written, though its own bytes are not read."""
        self.transport.write(last)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_S, self._close)

    def _close(self) -> None:
        """Close once all is written; the sweep looks after it until then, for the end may never be read."""
        self.transport.close()
        if self in self.connections:
            self.plane.idle.add(self)

    def _wait_for_request(self) -> None:
        self._idle_since_s = self.plane.clock()
        self.plane.idle.add(self)

    def _wait_if_idle(self) -> None:
        """Go on waiting where nothing came but empty lines, or the end of a body that was answered before."""
        if (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing():
            self.plane.idle.add(self)

    def close_if_idle(self, now: float) -> None:
        """Close the connection if it has waited for its next request for too long.

        A sweep asks this of all: uvicorn's timer for each request costs more than the sweep does.
        """
        if self.transport.is_closing():
            self._abort_if_unread(now)
        elif now - self._idle_since_s >= self.timeout_keep_alive:
            self.transport.close()

    def _abort_if_unread(self, now: float) -> None:
        """Give up a client that takes nothing of the end of its answer, for which a closing connection waits."""
        unread_bytes = self.transport.get_write_buffer_size()
        if unread_bytes != self._unread_bytes:
            self._unread_bytes, self._idle_since_s = unread_bytes, now
        elif now - self._idle_since_s >= self.plane.limits.silence_timeout_s:
            self.transport.abort()
