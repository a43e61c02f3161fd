"""A file with a list of replicas, looked at for changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from router.adapters.discovery.file_format import read_replicas
from router.adapters.discovery.trouble import Unreadable
from router.ports import Endpoint

MAX_FILE_BYTES = 4 << 20
"""Some 20,000 replicas: what is larger is another file."""

LOOK_S = 1.0
"""At the most between two looks: one costs microseconds, so there is no reason to wait for longer."""

Signature = tuple[int, int, int, int, int]


class ReplicaFile:
    """Reads the file when it is another one than before, and has been left alone since the last look.

    A file that is written in place may be looked at half-written, and half a list can be a valid one. So a change
    counts when two looks in a row find the same. The file system is asked in a thread: it may be a network's.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._seen: Signature | None = None
        """As the last look found it."""
        self._taken: Signature | None = None
        """As it was when it was read last."""
        self._mistake: str | None = None
        """What is wrong in the file as it was read last."""

    async def read(self) -> list[Endpoint] | None:
        """Return the list if it is new, as `polled.Reader` says."""
        return await asyncio.to_thread(self.look)

    def look(self) -> list[Endpoint] | None:
        """Do what `read` does, and wait for the file system."""
        try:
            found = self._look()
        except OSError as error:
            self._seen = None
            raise Unreadable(error.strerror or str(error)) from None
        if self._mistake is not None:
            raise Unreadable(self._mistake)
        return found

    def _look(self) -> list[Endpoint] | None:
        before, self._seen = self._seen, self._signature()
        settled = self._taken is None or self._seen == before
        if self._seen == self._taken or not settled:
            return None
        data = self._bytes()
        if self._signature() != self._seen:  # changed while it was read: the next look sees it as it is then
            return None
        self._taken, self._mistake = self._seen, None
        try:
            return read_replicas(data, self._path.suffix.lower())
        except ValueError as error:
            self._mistake = str(error)
            return None

    def _bytes(self) -> bytes:
        with self._path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise OSError(f"it is larger than {MAX_FILE_BYTES} bytes")
        return data

    def _signature(self) -> Signature:
        """What changes with the file. Links are followed, so another target is another file."""
        found = self._path.stat()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
