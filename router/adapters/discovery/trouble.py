"""Why a source can't be read, and saying so once."""

from __future__ import annotations

import logging
from collections.abc import Iterable

LOGGER = logging.getLogger("warmroute.discovery")


class Unreadable(Exception):
    """A source can't be read now. Its text is the reason, in one line, the same for the same reason."""

    def __init__(self, reason: str, retry_after_s: float = 0.0) -> None:
        """`retry_after_s`: how long whoever was asked wants to be left alone."""
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class Readability:
    """Whether a source can be read. Logs a change of that once, however often it is told."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._reasons: list[str] = []
        """Of the present trouble; empty while all is well."""
        self._remarks: frozenset[str] = frozenset()

    def well(self) -> None:
        """Note that it was read."""
        if self._reasons:
            self._reasons.clear()
            LOGGER.warning("%s can be read again", self._name)

    def failed(self, reason: str, fault: BaseException | None = None) -> None:
        """Note that it can't be read. `fault`: a mistake of ours, whose place is worth knowing."""
        if not self._reasons:
            LOGGER.warning("%s can't be read, its last list stays good: %s", self._name, reason, exc_info=fault)
        elif reason not in self._reasons:
            LOGGER.info("%s still can't be read: %s", self._name, reason, exc_info=fault)
        if reason not in self._reasons:
            self._reasons.append(reason)

    def remarks(self, remarks: Iterable[str]) -> None:
        """Note what was strange in a list that could be read; each is logged when it is new."""
        now = frozenset(remarks)
        for remark in sorted(now - self._remarks):
            LOGGER.warning("%s: %s", self._name, remark)
        self._remarks = now
