"""The files of a recording: one that grows, and some older ones. It blocks, and belongs to one thread at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from router.adapters.recording.lines import MARK


class Files:
    """FILE, and FILE.1, FILE.2 ... which were it before, the newest first. Lines are written whole or not at all.

    A file of an earlier recording, of this router or another one, is not gone on with: its hashes have another key. It
    becomes FILE.1.
    """

    def __init__(self, path: Path, max_bytes: int, most_files: int) -> None:
        """`max_bytes`: of each file; `most_files`: of all, FILE included; at least 1."""
        self.path = Path(os.path.realpath(path))
        self.max_bytes = max_bytes
        self.most_files = most_files
        self._descriptor: int | None = None
        self._size_bytes = 0

    def write(self, opening: bytes, lines: Sequence[bytes]) -> int:
        """Write lines, behind `opening` where a file begins; return how many are in a file.

        Raises OSError where not one could be written; when some could, the next call says why.
        """
        written = 0
        try:
            while written < len(lines):
                self._make_ready(opening, len(lines[written]))
                end = self._fitting(lines, written)
                self._append(b"".join(lines[written:end]))
                written = end
        except OSError:
            if not written:
                raise
        return written

    def _fitting(self, lines: Sequence[bytes], start: int) -> int:
        """Return where the lines end that the file has room for: one at least."""
        room_bytes, end = self.max_bytes - self._size_bytes - len(lines[start]), start + 1
        while end < len(lines) and len(lines[end]) <= room_bytes:
            room_bytes -= len(lines[end])
            end += 1
        return end

    def _make_ready(self, opening: bytes, size_bytes: int) -> None:
        """Have a file open with room for so much more."""
        if self._descriptor is not None and not self._is_in_place(self._descriptor):
            self.close()
        if self._descriptor is not None and self._size_bytes + size_bytes > self.max_bytes:
            self.close()
        if self._descriptor is None:
            self._descriptor, self._size_bytes = self._begin(), 0
        if self._size_bytes == 0:
            self._append(opening)

    def _is_in_place(self, descriptor: int) -> bool:
        """Tell whether the open file still has its name: it may have been deleted, or moved away to be kept."""
        try:
            there = self.path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(descriptor))

    def _begin(self) -> int:
        """Move what is there out of the way, and begin a file that its owner alone can read."""
        self.check()
        self._rotate()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor

    def check(self) -> None:
        """Raise OSError where nothing can be written, or something else is to be found that must not be replaced."""
        if not os.access(self.path.parent, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, f"{self.path.parent} is no folder that can be written to")
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            if os.read(descriptor, len(MARK)) not in (MARK, b""):
                raise FileExistsError(errno.EEXIST, "it is not a recording of Warmroute and is not overwritten")
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError(errno.EBUSY, "another router records there") from None
        finally:
            os.close(descriptor)

    def _rotate(self) -> None:
        """Give each file the next name; the last one goes. An empty one is no recording, and gets none."""
        try:
            size_bytes = self.path.stat().st_size
        except FileNotFoundError:
            return
        if self.most_files == 1 or not size_bytes:
            self.path.unlink()
            return
        names = [self.path, *(self.path.with_name(f"{self.path.name}.{age}") for age in range(1, self.most_files))]
        for older, newer in zip(names[:0:-1], names[-2::-1], strict=True):
            if newer.exists():
                newer.replace(older)

    def _append(self, data: bytes) -> None:
        """Write all of it. In error the file is as it was before: its last line is whole."""
        descriptor = self._descriptor
        if descriptor is None:
            return
        done = 0
        try:
            while done < len(data):
                done += os.write(descriptor, data[done:])
        except OSError:
            self._take_back(descriptor)
            raise
        self._size_bytes += done

    def _take_back(self, descriptor: int) -> None:
        """Cut off what was written of a line that does not fit."""
        try:
            os.ftruncate(descriptor, self._size_bytes)
        except OSError:
            self.close()  # the next line must not go on where this one ends

    def close(self) -> None:
        """Close the file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
