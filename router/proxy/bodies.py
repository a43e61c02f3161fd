"""How much memory the bodies of requests take, all together."""

from __future__ import annotations


class Bodies:
    """Counts the bytes of all request bodies in memory, and says which may still grow."""

    __slots__ = ("held_bytes", "limit_bytes")

    def __init__(self, limit_bytes: int = 512 << 20) -> None:
        """`limit_bytes`: what they may take together, at least 1."""
        self.limit_bytes = limit_bytes
        self.held_bytes = 0

    def crowd_out(self, size_bytes: int) -> bool:
        """Tell whether a body of which `size_bytes` have come, themselves counted, must not grow any further.

        It may take as much as is left free: Choudhury and Hahne's dynamic threshold for packets that share a memory
        ("Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", 1998) with alpha 1. The largest are
        refused first and the smallest last, and somebody who fills the memory with a few never takes the last of it.
        """
        return size_bytes > self.limit_bytes - self.held_bytes


UNCOUNTED = Bodies()
"""Of requests that stand for no client's."""
