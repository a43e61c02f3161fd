"""Links: hashes under which a session is found again, and the ends of its turns that they stand for."""

from __future__ import annotations

import struct

import msgspec
import xxhash

from router.core.bounded import BoundedMap
from router.core.misses.parts import OPERATORS, Packed, count_of, part_at

CERTAIN_BYTES = 64
"""A message of this size, or two that follow each other, at the end of a turn name a session. "Yes, please" does not.
That they are followed by more is what rules out strangers: whoever began alike is found by the whole beginning."""

_TAIL_BITS = 0x6A09_E667_F3BC_C908
HINT_BITS = 0xBB67_AE85_84CA_A73B
OPEN_BITS = 0x3C6E_F372_FE94_F82B
"""Turn hashes over into keys of links: ends of turns by their last messages, session hints, last blocks of texts."""

_NUMBER_MASK, _TOKENS_MASK = (1 << 16) - 1, (1 << 24) - 1
_hash = xxhash.xxh3_64_intdigest


class Link(msgspec.Struct, frozen=True, gc=False):
    """The end of an earlier turn."""

    session: int
    """48 bits."""
    tokens: int = 0
    number: int = 0
    reported: bool = False


def pack(session: int, tokens: int = 0, number: int = 0, reported: bool = False) -> int:
    """Return a link as one number."""
    return session << 41 | reported << 40 | min(tokens, _TOKENS_MASK) << 16 | min(number, _NUMBER_MASK)


def session_of(packed: int) -> int:
    """Return the session of a packed link."""
    return packed >> 41


def unpack(packed: int) -> Link:
    """Return the link that was packed."""
    return Link(packed >> 41, packed >> 16 & _TOKENS_MASK, packed & _NUMBER_MASK, bool(packed >> 40 & 1))


def peek(links: BoundedMap[int], key: int) -> int | None:
    """Look a key up without counting that as a use."""
    older, newer = links.halves()
    value = newer.get(key)
    return older.get(key) if value is None else value


def tail_key(packed: Packed, place: int) -> int | None:
    """Return the key of a turn that ends with this part; None where that is too little to know a session by.

    A negative place counts from the end.
    """
    exact, _, size = part_at(packed, place)
    if size & 0xFF in OPERATORS:
        return None
    if size >> 8 >= CERTAIN_BYTES:
        return exact ^ _TAIL_BITS
    if not place or place == -count_of(packed):
        return None
    exact_before, _, size_before = part_at(packed, place - 1)
    if size_before & 0xFF in OPERATORS or (size >> 8) + (size_before >> 8) < CERTAIN_BYTES:
        return None
    return _hash(struct.pack("=2Q", exact_before, exact), _TAIL_BITS)
