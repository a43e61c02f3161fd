"""Whether new requests are wanted: until the router is told to stop."""

from __future__ import annotations

from router.proxy.plane import Plane


class Gate:
    """One word for all who ask: readiness, the data plane, metrics."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    @property
    def open(self) -> bool:
        """Whether new requests are wanted. Those that come while it is closed are served, on their connection's end."""
        return not self._plane.stopping

    def close(self) -> None:
        """Want no more; for good."""
        self._plane.stopping = True
