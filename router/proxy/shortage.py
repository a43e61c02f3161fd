"""What the system does not give this router, and that it is said once and not for each request."""

from __future__ import annotations

import logging

LOGGER = logging.getLogger("warmroute.limits")

AGAIN_S = 60.0
"""Between two lines about it: often enough to be seen while it lasts, seldom enough to read what else is logged."""


class Shortage:
    """Counts connections that could not be made for lack of files, ports or memory (`ports.OWN_FAULTS`)."""

    def __init__(self) -> None:
        self.count = 0
        self._said_s = float("-inf")

    def met(self, error: OSError, now: float) -> None:
        """Note one; `now` in monotonic seconds."""
        self.count += 1
        if now - self._said_s >= AGAIN_S:
            self._said_s = now
            LOGGER.warning("connections to replicas can't be made: %s; no replica is blamed", error.strerror or error)
