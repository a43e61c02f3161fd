"""Parts of a prompt as hashes: exact ones, and sketches that do not see white space, or numbers and ids."""

from __future__ import annotations

import string
import struct
from array import array
from collections.abc import Callable, Sequence

import msgspec
import xxhash

from router.core.prompt import MEDIA, MEDIA_BYTES, OPERATOR
from router.core.types import Part

SKETCHED_BYTES = 1 << 11
"""A message is sketched up to here, at about 1 ns a byte for both sketches; what follows is hashed as it stands. So a
long one that differs in more than its head may look changed, but never the other way round."""

SKETCHED_OPENING_BYTES = 1 << 16
"""The same of what the operator says, which is sketched once and not for every request."""

SKETCHED_TOOLS_BYTES = 1 << 18
"""A list of tools above this size is sketched as a text: 250 kB of tools are taken apart in under a millisecond."""

LEAST_PLAIN_BYTES = 12
"""What must be left of a part without its numbers to be compared by it: "turn 7 ok" and "10 of 12 ok" are strangers."""

LEAST_PLAIN_RATIO = 0.25
"""Share of a part that must be left without its numbers, for the same reason. Of English prose 0.65 is."""

PREVIOUS = b"previous"
"""Tag of the id of a stored response: the history that it stands for is not in the prompt."""

_TAGS = (
    b"template",
    b"template-arguments",
    b"documents",
    b"tools",
    b"system",
    b"developer",
    b"user",
    b"assistant",
    b"tool",
    b"call",
    MEDIA,
    PREVIOUS,
)
CODES = {tag: code for code, tag in enumerate(_TAGS)}
"""Tag -> its number, in the order in which a chat template renders them: the operator's come first."""

OTHER = len(_TAGS)
"""Number of every other tag."""

OPERATORS = frozenset(CODES[tag] for tag in OPERATOR)
ANSWERS = frozenset({CODES[b"assistant"], CODES[b"call"]})
"""What the engine has generated."""

ROLES = ("template", "template", "template", "tools", "system", "system", "user", "assistant", "tool", "call", "media",
         "other", "other")  # fmt: skip
"""Code -> whose it is, as `Change.role` has it: never a word of the client's."""

NUMBERS = 3
"""64-bit numbers that a part is packed into: its exact hash, its sketches, its size in bytes << 8 | its tag's code."""

PART_BYTES = 8 * NUMBERS

LAST_OPERATOR = max(OPERATORS)
"""The operator's codes are the first ones."""

_TOOLS, _MEDIA = CODES[b"tools"], CODES[MEDIA]
_MASK = 0xFFFF_FFFF
_SPACING = bytes(string.whitespace + string.punctuation, "ascii")
_VARYING = b"0123456789abcdefABCDEF"
_DATES = (
    b"Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March April June July August "
    b"September October November December Mon Tue Wed Thu Fri Sat Sun Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov "
    b"Dec AM PM"
).split()

Packed = bytes
"""Parts as packed numbers, out of the garbage collector's sight (see core/leases.py)."""

_hash = xxhash.xxh3_64_intdigest
_decode_raws: Callable[[bytes], list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw]).decode


_numbers_at: Callable[[Packed, int], tuple[int, ...]] = struct.Struct(f"={NUMBERS}Q").unpack_from


def count_of(packed: Packed) -> int:
    """Return how many parts there are."""
    return len(packed) // PART_BYTES


def part_at(packed: Packed, place: int) -> tuple[int, ...]:
    """Return the three numbers of one part. A negative place counts from the end."""
    return _numbers_at(packed, place * PART_BYTES if place >= 0 else len(packed) + place * PART_BYTES)


def hashes_of(packed: Packed) -> memoryview[int]:
    """Return the exact hashes: of tag and content, not chained and in no scope."""
    return memoryview(packed).cast("Q")[::NUMBERS]


def sketches_of(packed: Packed) -> memoryview[int]:
    """Return the sketches (see `sketch`)."""
    return memoryview(packed).cast("Q")[1::NUMBERS]


def sizes_of(packed: Packed) -> list[int]:
    """Return the sizes in bytes."""
    return [size >> 8 for size in memoryview(packed).cast("Q")[2::NUMBERS]]


def codes_of(packed: Packed) -> list[int]:
    """Return the codes of the tags."""
    return [size & 0xFF for size in memoryview(packed).cast("Q")[2::NUMBERS]]


def hash_parts(parts: Sequence[Part], known: Callable[[int], int | None]) -> Packed:
    """Hash parts. `known` returns the sketches of what the operator has said before, by its exact hash."""
    packed: list[int] = []
    for _, tag, content, _ in parts:
        code = CODES.get(tag, OTHER)
        digest, size = _hash(content, code if code < OTHER else _hash(tag)), len(content)
        if code > LAST_OPERATOR:
            if code == _MEDIA:
                packed += (digest, 0, MEDIA_BYTES << 8 | code)
            else:
                packed += (digest, _sketch_text(content), size << 8 | code)
        else:
            sketches = known(digest)
            packed += (digest, sketch(code, content) if sketches is None else sketches, size << 8 | code)
    return array("Q", packed).tobytes()


def sketch(code: int, content: bytes | memoryview) -> int:
    """Return two sketches of a text or of a list of tools, 32 bits each, in one number.

    The upper one does not see white space and punctuation, the lower one no digits and hexadecimal letters either, and
    of what the operator says no names of days and months. Of tools each is a sum over the tools, in whatever order. 0
    in place of the lower one: too little is left of the part.
    """
    if code == _TOOLS and len(content) <= SKETCHED_TOOLS_BYTES:
        return _sketch_tools(bytes(content))
    return _sketch_text(content, dated=code in OPERATORS)


def _sketch_text(content: bytes | memoryview, dated: bool = False) -> int:
    limit, rest = SKETCHED_OPENING_BYTES if dated else SKETCHED_BYTES, 0
    if len(content) > limit:
        content, rest = content[:limit], _hash(content[limit:])
    words = (content if isinstance(content, bytes) else bytes(content)).translate(None, _SPACING)
    plain = (_undated(words) if dated else words).translate(None, _VARYING)
    upper = (_hash(words, rest) & _MASK) << 32
    if len(plain) < LEAST_PLAIN_BYTES or len(plain) < len(words) * LEAST_PLAIN_RATIO:
        return upper
    return upper | _hash(plain, rest) & _MASK


def _undated(words: bytes) -> bytes:
    for name in _DATES:
        words = words.replace(name, b"")
    return words


def _sketch_tools(content: bytes) -> int:
    try:
        tools = _decode_raws(content)
    except (msgspec.MsgspecError, RecursionError):
        return _sketch_text(content, dated=True)
    upper = lower = 0
    for tool in tools:
        one = _sketch_text(bytes(tool), dated=True)
        upper += one >> 32
        lower += one & _MASK
    return (upper & _MASK) << 32 | (lower & _MASK)
