"""An error answer held back while it may still be better to ask another replica."""

from __future__ import annotations

from router.core.types import OutcomeKind
from router.proxy.feedback import SHUT_DOWN

MAX_HELD_BYTES = 65_536
"""vLLM's error bodies are under 1 kB; a longer one is passed on as it comes."""

HELD_STATUSES = frozenset({500, 502, 503, 504})


class HeldAnswer:
    """The body of an answer with one of `HELD_STATUSES`."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = b""

    def add(self, data: bytes) -> None:
        """Take a piece of the body in."""
        self._data += data

    @property
    def full(self) -> bool:
        """Tell whether it has grown too long to be held."""
        return len(self._data) > MAX_HELD_BYTES

    @property
    def data(self) -> bytes:
        """What has come, framed as it came."""
        return self._data

    def retry_as(self, status: int) -> OutcomeKind | None:
        """Return how to count the attempt if it is to be made elsewhere; None: the answer is for the client.

        503 is back-pressure; 502, 504 and the 500 of an engine that shuts down mean that no work was done.
        """
        if status == 503:
            return OutcomeKind.BUSY
        if status != 500 or SHUT_DOWN in self._data:
            return OutcomeKind.RESET
        return None
