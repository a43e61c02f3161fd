"""What routers of one fleet tell each other: the turns they send, how those end, and the load they cause."""

from __future__ import annotations

from array import array

import msgspec

from router.core.replica import Load
from router.core.ticket import Settlement, Ticket
from router.core.tokens import turn_links
from router.core.types import Prompt, ReplicaId

END_BYTES = 4
"""Of a block's end in `Opened.ends_bytes`."""


class Opened(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """A request was sent to a replica."""

    number: int
    """Of the router's ticket."""
    replica: ReplicaId
    uncached_tokens: int
    hashes: bytes = b""
    """64-bit block hashes, in this machine's order of bytes; empty for keyless requests."""
    ends_bytes: bytes = b""
    """32-bit ends of the blocks, as canonical bytes."""
    links: list[tuple[int, int]] = []
    """The turn's end, with estimated counts (see `tokens.turn_links`)."""
    session: int | None = None

    def prompt(self) -> Prompt | None:
        """Return the blocks as a prompt; None for keyless requests, and for what can be none."""
        hashes = array("Q", self.hashes).tolist()
        if not hashes or len(set(hashes)) < len(hashes):  # chained hashes do not repeat: this is forged
            return None
        return Prompt(hashes, array("I", self.ends_bytes).tolist(), [], None)


class Settled(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """It has ended there."""

    number: int
    computed: bool
    overestimated: bool
    answer_bytes: int
    bytes_per_token: float
    links: list[tuple[int, int]] = []
    """The turn's end, as the engine counted it; empty where nothing goes on."""


class Homed(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """A session or a stored object is at home on a replica."""

    key: int
    replica: ReplicaId


News = Opened | Settled | Homed


class Bulletin(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one router has to tell since its last bulletin."""

    oldest_open: int
    """Every request with a lower number has ended, whether its end was heard of or not."""
    whole: bool
    """The loads are all there are; a replica that is not named has none."""
    loads: list[tuple[ReplicaId, Load]]
    """What the router has under way, of the replicas where it changed."""
    news: list[News]
    leaving: bool = False
    """The router's last words."""


def opened(ticket: Ticket) -> Opened:
    """Tell that a request was sent."""
    request, entry = ticket.request, ticket.entry
    prompt, replica = request.prompt, ticket.replica.replica_id
    if prompt is None:
        return Opened(ticket.number, replica, entry.work.uncached, session=request.session)
    return Opened(
        ticket.number,
        replica,
        entry.work.uncached,
        array("Q", prompt.hashes).tobytes(),
        array("I", prompt.ends_bytes).tobytes(),
        turn_links(prompt, ticket.decision.prompt_tokens, 0),
        request.session,
    )


def settled(ticket: Ticket, settlement: Settlement) -> Settled:
    """Tell how it ended."""
    prompt, links = ticket.request.prompt, []
    if settlement.served and prompt is not None:
        links = turn_links(prompt, settlement.prompt_tokens, settlement.answer_tokens)
    return Settled(
        ticket.number,
        settlement.computed,
        settlement.overestimated,
        settlement.answer_bytes,
        settlement.bytes_per_token,
        links,
    )
