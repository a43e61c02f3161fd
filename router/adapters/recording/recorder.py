"""Records requests: their lines are gathered on the event loop, and written by a thread, which may wait for a disk."""

from __future__ import annotations

import asyncio
import logging

from router.adapters.recording.counts import RecordingCounts
from router.adapters.recording.files import Files
from router.adapters.recording.lines import Lines
from router.core.fleet import Fleet
from router.core.types import RoutingRequest
from router.ports import RequestRecord

LOGGER = logging.getLogger("warmroute.recording")

FLUSH_S = 1.0
"""How long a line may wait for others: what a router that is killed loses."""

MOST_WAITING_BYTES = 8 << 20
"""Lines that wait for a slow disk; what comes beyond is dropped. Some seconds of a busy router."""


class Recorder:
    """Implements the port of this name. It belongs to the event loop it is first told something in."""

    def __init__(self, lines: Lines, files: Files, fleet: Fleet, counts: RecordingCounts) -> None:
        self.files = files
        self._lines = lines
        self._fleet = fleet
        self._counts = counts
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None

    def request_finished(self, record: RequestRecord, request: RoutingRequest, reads: int) -> None:
        """Record a request."""
        line = self._lines.line(record, request, reads)
        if line is None:
            return
        if self._waiting_bytes + len(line) > MOST_WAITING_BYTES:
            self._counts.dropped += 1
            return
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        if self._timer is None and self._writing is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_S, self._begin_to_write)

    def _begin_to_write(self) -> None:
        self._timer = None
        self._writing = asyncio.ensure_future(self._write())

    async def _write(self) -> None:
        """Write all that waits, and what comes meanwhile."""
        try:
            while self._waiting:
                lines, self._waiting, self._waiting_bytes = self._waiting, [], 0
                await self._write_lines(lines)
        finally:
            self._writing = None

    async def _write_lines(self, lines: list[bytes]) -> None:
        try:
            written = await asyncio.to_thread(self.files.write, self._lines.opening(self._fleet), lines)
        except OSError as error:
            self._counts.dropped += len(lines)
            self._failed(error)
        else:
            self._counts.written += written
            self._counts.dropped += len(lines) - written
            self._wrote()

    def check(self) -> None:
        """Say so now if nothing can be recorded."""
        try:
            self.files.check()
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        reason = error.strerror or str(error)
        if self._counts.trouble is None:
            LOGGER.warning(
                "requests can't be recorded in %s: %s; they are served all the same", self.files.path, reason
            )
        self._counts.trouble = reason

    def _wrote(self) -> None:
        if self._counts.trouble is not None:
            LOGGER.warning("requests are recorded in %s again", self.files.path)
        self._counts.trouble = None

    async def close(self) -> None:
        """Write what waits, and close the file. Nothing may be recorded afterwards."""
        if self._timer is not None:
            self._timer.cancel()
            self._begin_to_write()
        if self._writing is not None:
            await self._writing
        await asyncio.to_thread(self.files.close)
