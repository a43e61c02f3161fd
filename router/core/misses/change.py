"""What a client changed of its history: the first part that differs from the turn before, and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from router.core.misses.parts import (
    CODES,
    LAST_OPERATOR,
    OPERATORS,
    PART_BYTES,
    ROLES,
    Packed,
    codes_of,
    count_of,
    hashes_of,
    part_at,
    sizes_of,
    sketches_of,
)
from router.core.misses.types import Cause, Change
from router.core.types import Part

_TOOLS = CODES[b"tools"]
_LOWER = 0xFFFF_FFFF
_OPERATORS_OWN = frozenset({Cause.TEMPLATE_CHANGED, Cause.TOOLS_CHANGED, Cause.SYSTEM_CHANGED})

Known = Callable[[int], int | None]
"""A look-up by key; None: there is nothing."""


class Difference(NamedTuple):
    """A change before it is known how many tokens the history has."""

    cause: Cause
    message: int | None
    role: str
    kept_ratio: float
    """What precedes it / the whole history, in bytes; 0 to 1."""

    def change(self, history_tokens: int) -> Change:
        """Return the change of a history of so many tokens."""
        return Change(self.cause, self.message, self.role, int(history_tokens * self.kept_ratio))


def scope_changed(cause: Cause) -> Difference:
    """Return the change of what separates caches: nothing is kept."""
    return Difference(cause, None, "other", 0.0)


def difference(old: Packed, new: Packed, parts: Sequence[Part]) -> Difference | None:
    """Compare a turn's parts (hashed: `new`) with those of the turn before. None: one is the beginning of the other."""
    place = common(old, new)
    if place in (count_of(old), count_of(new)):
        return None
    was, now = codes_of(old), codes_of(new)
    cause = _cause(old, new, was, now, place)
    owner = min(was[place], now[place]) if cause in _OPERATORS_OWN else now[place]
    return _at(cause, owner, parts[place], _ratio(old, place))


def common(old: Packed, new: Packed) -> int:
    """Return how many leading parts are the same."""
    shorter = min(len(old), len(new))
    if old[:shorter] == new[:shorter]:
        return shorter // PART_BYTES
    pairs = zip(hashes_of(old), hashes_of(new), strict=False)
    return next(place for place, (one, other) in enumerate(pairs) if one != other)


def opening_of(codes: Sequence[int]) -> int:
    """Return how many leading parts are the operator's."""
    return next((place for place, code in enumerate(codes) if code not in OPERATORS), len(codes))


def _at(cause: Cause, code: int, part: Part, kept_ratio: float) -> Difference:
    message = part[0] if part[0] >= 0 and code > _TOOLS else None
    return Difference(cause, message, ROLES[code], kept_ratio)


def _ratio(packed: Packed, place: int) -> float:
    sizes = sizes_of(packed)
    return sum(sizes[:place]) / max(1, sum(sizes))


def _cause(old: Packed, new: Packed, was: list[int], now: list[int], place: int) -> Cause:
    opening = opening_of(was)
    alike = _alike(old, new, place) if was[place] == now[place] else None
    if alike is not None and _is_replaced(old, new, place):
        return alike
    if place == opening and _is_trimmed(old, new, place):
        return Cause.HEAD_TRIMMED
    if place < max(opening, opening_of(now)):
        return _cause_of_operator(min(was[place], now[place]))
    return Cause.EDITED


def _cause_of_operator(code: int) -> Cause:
    """Return the cause where a part of the operator's has become another, has gone or was put in."""
    if code < _TOOLS:
        return Cause.TEMPLATE_CHANGED
    return Cause.TOOLS_CHANGED if code == _TOOLS else Cause.SYSTEM_CHANGED


def _alike(old: Packed, new: Packed, place: int) -> Cause | None:
    """Return how one part was made of another, if it looks like it."""
    was, now = sketches_of(old)[place], sketches_of(new)[place]
    if was >> 32 == now >> 32 and was:
        reordered = codes_of(new)[place] == _TOOLS and sizes_of(old)[place] == sizes_of(new)[place]
        return _same_words(reordered)
    return Cause.STAMPED if was & _LOWER and was & _LOWER == now & _LOWER else None


def _same_words(reordered: bool) -> Cause:
    """Tell tools in another order, which take as many bytes, from those that are written in another way."""
    return Cause.TOOLS_REORDERED if reordered else Cause.REFORMATTED


def _is_replaced(old: Packed, new: Packed, place: int) -> bool:
    """Tell whether one part stands in another's place. Where either is found elsewhere, something was cut or put in."""
    was, now = hashes_of(old)[place:].tolist(), hashes_of(new)[place:].tolist()
    return now[0] not in was and was[0] not in now


def _is_trimmed(old: Packed, new: Packed, place: int) -> bool:
    """Tell whether more was cut at `place` than was put there, a summary for one, before it goes on as it was."""
    was = hashes_of(old)[place:].tolist()
    for added, part in enumerate(hashes_of(new)[place:]):
        if part in was:
            return was.index(part) > added
    return False


def opening_difference(new: Packed, parts: Sequence[Part], known: Known, sketched: Known) -> Difference | None:
    """Compare what a first turn begins with to what other sessions began with. None: it is the same, or quite another.

    `known`: exact hash of an operator's part -> its sketches, None where it is new. `sketched`: see `sketch_keys`.
    """
    for place, part in enumerate(parts):
        exact, sketches, size = part_at(new, place)
        code = size & 0xFF
        if code > LAST_OPERATOR:
            return None
        if known(exact) is None:
            cause = _like_others(code, sketches, size >> 8, sketched)
            return None if cause is None else _at(cause, code, part, _ratio(new, place))
    return None


def sketch_keys(code: int, sketch: int) -> tuple[int, int]:
    """Return the keys under which an operator's part is found by its two sketches; the value is its size in bytes."""
    return 1 << 56 | code << 48 | sketch >> 32, 2 << 56 | code << 48 | sketch & _LOWER


def _like_others(code: int, sketch: int, size_bytes: int, sketched: Known) -> Cause | None:
    words, plain = sketch_keys(code, sketch)
    other_bytes = sketched(words)
    if other_bytes is not None and sketch >> 32:
        return _same_words(reordered=code == _TOOLS and other_bytes == size_bytes)
    return Cause.STAMPED if sketch & _LOWER and sketched(plain) is not None else None
