"""Idle sessions that may be touched, with what is sent for it: within one budget of memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from router.core.curves import ReturnClass
from router.core.types import ReplicaId

HASH_BYTES = 96
"""Memory of a block's hash and of its end, as numbers in two lists (64-bit CPython)."""

Body = TypeVar("Body")
"""What a touch is made from: a request's body, or its like in a replay."""


@dataclass(slots=True, eq=False)
class Kept(Generic[Body]):
    """A session between two turns, and what renews its blocks."""

    session: int
    """Hash of its last block: the end of its last turn."""
    replica: ReplicaId
    hashes: list[int]
    ends_bytes: list[int]
    """As in `types.Prompt`, of the last turn's prompt."""
    kind: ReturnClass
    ended_s: float
    prompt_tokens: int
    prefill_s: float
    """What it takes to compute the whole prompt again."""
    worth_s: float
    """That, by the chance of any return, at the end of the turn: what goes first when memory is short."""
    expires_s: float
    """From when on hardly anybody comes back."""
    body: Body
    body_bytes: int
    used_s: float = 0.0
    """When the engine last used its blocks: the end of the turn, or of the last touch."""
    touches: int = 0

    @property
    def size_bytes(self) -> int:
        """Memory that it takes."""
        return self.body_bytes + len(self.hashes) * HASH_BYTES


class Shelf(Generic[Body]):
    """Sessions by the hash of their last block, and by replica in the order of their last use."""

    def __init__(self) -> None:
        self._kept: dict[int, Kept[Body]] = {}
        self._lines: dict[ReplicaId, dict[int, Kept[Body]]] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, session: int) -> bool:
        return session in self._kept

    def put(self, kept: Kept[Body], limit_bytes: int) -> None:
        """Keep a session, in place of what was kept of it, and give those up that are worth least."""
        self.pop(kept.session)
        self._kept[kept.session] = kept
        self._lines.setdefault(kept.replica, {})[kept.session] = kept
        self.size_bytes += kept.size_bytes
        self.shrink(limit_bytes)

    def shrink(self, limit_bytes: int) -> None:
        """Give those up that are worth least until the rest fits."""
        while self._kept and self.size_bytes > limit_bytes:
            self.pop(min(self._kept.values(), key=_worth_s).session)

    def pop(self, session: int) -> Kept[Body] | None:
        """Give a session up; return it, None where it is not kept."""
        kept = self._kept.pop(session, None)
        if kept is not None:
            self.size_bytes -= kept.size_bytes
            del self._lines[kept.replica][session]
        return kept

    def used(self, kept: Kept[Body], now: float) -> None:
        """Note that the engine used its blocks just now; nothing happens where it is not kept any more."""
        kept.used_s = now
        if self._kept.get(kept.session) is kept:
            line = self._lines[kept.replica]
            line[kept.session] = line.pop(kept.session)

    def on(self, replica: ReplicaId) -> Iterator[Kept[Body]]:
        """Return the sessions of a replica, least recently used first. Must not change meanwhile."""
        return iter(self._lines.get(replica, {}).values())

    def forget(self, replica: ReplicaId) -> None:
        """Give all up that a replica had."""
        for session in list(self._lines.pop(replica, {})):
            self.size_bytes -= self._kept.pop(session).size_bytes


def _worth_s(kept: Kept[Body]) -> float:
    return kept.worth_s
