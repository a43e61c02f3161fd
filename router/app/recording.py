"""The recording as the settings want it: begun and ended while requests run."""

from __future__ import annotations

import asyncio
import secrets
import time
from pathlib import Path
from typing import Any, NamedTuple

from router.adapters.recording.counts import RecordingCounts
from router.adapters.recording.files import Files
from router.adapters.recording.keyed import KEY_BYTES
from router.adapters.recording.lines import Lines
from router.adapters.recording.recorder import Recorder
from router.app.settings.model import Settings
from router.proxy.plane import Plane


class Origin(NamedTuple):
    """What makes hashes and times of one recording comparable; all workers have the same."""

    key: bytes
    """Secret, and never written."""
    started_s: float
    """Unix time."""
    worker: int = 0
    """Number of a worker, from 1; 0 where there is one process."""


def new_origin() -> Origin:
    """Begin a recording now."""
    return Origin(secrets.token_bytes(KEY_BYTES), time.time())


class Recording:
    """Belongs to a House."""

    def __init__(self, plane: Plane) -> None:
        self.counts = RecordingCounts()
        self.origin: Origin | None = None
        """Of the next recording, where somebody else began it."""
        self._plane = plane
        self._recorder: Recorder | None = None
        self._path: Path | None = None
        self._closing: set[asyncio.Future[None]] = set()

    def apply(self, settings: Settings) -> None:
        """Record where the settings say. Where nothing can be written, that is logged and counted."""
        if settings.record != self._path:
            self._end()
            self._path = settings.record
            if settings.record is not None:
                self._begin(settings.record, self.origin or new_origin(), settings)
        elif self._recorder is not None:
            files = self._recorder.files
            files.max_bytes, files.most_files = int(settings.record_max_bytes), settings.record_files

    def _begin(self, path: Path, origin: Origin, settings: Settings) -> None:
        plane = self._plane
        if origin.worker:
            path = path.with_name(f"{path.name}.w{origin.worker}")
        lines = Lines(origin.key, plane.clock() - (time.time() - origin.started_s), origin.started_s)
        files = Files(path, int(settings.record_max_bytes), settings.record_files)
        recorder = Recorder(lines, files, plane.fleet, self.counts)
        self._recorder = plane.recorder = recorder
        self.counts.running, self.counts.trouble = True, None
        recorder.check()

    def _end(self) -> None:
        recorder, self._recorder = self._recorder, None
        self._plane.recorder = None
        self.counts.running = False
        if recorder is not None:
            closing = asyncio.ensure_future(recorder.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def describe(self) -> dict[str, Any] | None:
        """Describe the recording that runs; None where none does. Requests are counted since the router's start."""
        if self._recorder is None:
            return None
        counts = self.counts
        return {
            "file": str(self._recorder.files.path),
            "written": counts.written,
            "dropped": counts.dropped,
            "trouble": counts.trouble,
        }

    async def close(self) -> None:
        """Write all that is to be recorded."""
        self._end()
        if self._closing:
            await asyncio.wait(self._closing)
