"""One turn of a session: what is remembered of it, and what is recognised of the next one."""

from __future__ import annotations

import msgspec

from router.core.misses.change import Difference
from router.core.misses.parts import PART_BYTES, Packed
from router.core.types import Prompt, ReplicaId

TURN_BYTES = 640
"""Memory of one session without its packed parts: the record, its numbers, and its place in the table."""


class Turn(msgspec.Struct, frozen=True, gc=False):
    """The last turn of a session."""

    number: int
    leaf: int
    """Chained hash of its prompt's end."""
    root: int
    """Chained hash of its first block: another one for the same words is in another scope."""
    model: str
    prompt_tokens: int
    reported: bool
    """The engine said how many they are."""
    replica: ReplicaId
    epoch: int
    """Of the replica's mirror: another one since has lost it."""
    end_s: float
    parts: Packed

    @property
    def size_bytes(self) -> int:
        """Memory."""
        return TURN_BYTES + len(self.model) + len(self.parts)

    def ends(self, prompt: Prompt, position: int, count: int) -> bool:
        """Tell whether so many leading blocks and parts of a prompt are all of this turn's, and its last answer next.

        Where more answers follow, somebody else has served a turn since.
        """
        if self.leaf != prompt.hashes[position - 1] or len(self.parts) != count * PART_BYTES:
            return False
        return not prompt.answers_at or prompt.answers_at[-1] <= position


class Origin(msgspec.Struct, frozen=True, gc=False):
    """What a turn goes on from."""

    session: int
    """48 bits."""
    number: int
    """Of the turn itself, from 1."""
    before: Turn | None = None
    """The session's last turn; None where it is not known, or this is the first."""
    tokens: int = 0
    """Of the prompt that it goes on from; 0: none is known."""
    reported: bool = False
    """The engine said so."""
    change: Difference | None = None


class Recognised(msgspec.Struct, frozen=True, gc=False):
    """A request whose session is known. Nothing is learnt of it before it is served."""

    origin: Origin
    arrived_s: float
    parts: Packed
    leaf: int
    root: int
    model: str
    hint: int | None
    text_end: tuple[int, int] | None
    """Of a text: hash of its last whole block, and bytes that follow it."""

    @property
    def session_id(self) -> str:
        """Opaque id."""
        return f"s-{self.origin.session:012x}"

    @property
    def idle_s(self) -> float | None:
        """Seconds from the end of the session's last turn to this one's arrival."""
        before = self.origin.before
        return None if before is None else max(0.0, self.arrived_s - before.end_s)


def next_of(session: int, before: Turn, again: bool = False) -> Origin:
    """Go on from a session's last turn, or ask for it `again`."""
    return Origin(session, before.number + (not again), before, before.prompt_tokens, before.reported)
