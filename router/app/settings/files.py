"""Notices that files have changed and come to rest, without being told: what ConfigMaps and editors do to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

Mark = tuple[int, int, int, int]
"""Device, inode, time of change in ns and size: one of them is another after a write, a rename, or a swapped link."""


def mark(file: Path) -> Mark | None:
    """Return the mark of what the path leads to, through links; None where there is nothing."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


class Watched:
    """The marks of some files from look to look."""

    def __init__(self, known: Mapping[Path, Mark | None]) -> None:
        """`known`: the marks that files had when they were read; others are known from their first look on."""
        self._known = dict(known)
        self._last = self._known

    def changed(self, files: Iterable[Path]) -> bool:
        """Look; return whether files have changed since they were read, and are the same as at the last look.

        A file that is being written is another one at every look. Half of it may be valid, and must not be read.
        """
        seen = {file: mark(file) for file in files}
        rests, self._last = seen == self._last, seen
        self._known = {file: self._known.get(file, found) for file, found in seen.items()}
        return rests and seen != self._known

    def read(self) -> None:
        """Note that the files are read now."""
        self._known = {file: mark(file) for file in self._known}
