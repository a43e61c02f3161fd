"""Warmroute's own recordings: one JSON object a finished request behind a line that says how the fleet was."""

from __future__ import annotations

import sys
from array import array
from base64 import b64decode
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

import msgspec

from router.replay.traces.lines import TraceError, records
from router.replay.traces.types import NonNegative, NonNegativeSeconds, Positive, TraceRequest, runs_of

_FAILED_STATUS = 400
_IDENTITY_BITS = 62  # leaves room to count up from one without leaving 64


class Fleet(msgspec.Struct):
    """The first line of a recording: the engines it was made with."""

    warmroute_recording: Positive
    block_tokens: Positive = 16
    kv_tokens: NonNegative = 0
    """Of one replica; 0: not known."""
    replicas: NonNegative = 0


class _Line(msgspec.Struct):
    """A request, or in a file that was joined of several the first line of a further one."""

    warmroute_recording: int = 0
    timestamp: NonNegative | None = None
    input_length: NonNegative = 0
    output_length: NonNegative = 0
    session: str = ""
    finish_reason: str | None = None
    hashes: str = ""
    ends: list[NonNegative] = []
    status: int = 200
    total_s: NonNegativeSeconds = 0.0


class _Asked(msgspec.Struct):
    """A request that an engine computed."""

    arrives_s: float
    line: _Line
    hashes: Sequence[int]
    ends: list[int] = []


def read_fleet(line: str) -> Fleet:
    """Return what a recording's first line says.

    Raises:
        TraceError: it is no such line.
    """
    for _, fleet in records([line], Fleet):
        return fleet
    raise TraceError(1, "a recording begins with the line that says how its fleet was")


def read_recording(lines: Iterable[str]) -> list[TraceRequest]:
    """Return a recording's requests in order of arrival; without those that were answered by an error.

    Raises:
        TraceError: a line is not of this format.
    """
    given = iter(lines)
    fleet = read_fleet(next(given, ""))
    asked = sorted(_asked(given), key=lambda one: one.arrives_s)
    _settle_ends(asked)
    blocks = [_identities(one.hashes, one.ends, one.line.input_length, fleet.block_tokens) for one in asked]
    later = _continued_by(asked)
    thinks_s = _think_times(asked)
    return [
        _request(one, think_s, _with_answer(one, blocks, own, after, fleet.block_tokens), fleet.block_tokens)
        for own, (one, think_s, after) in enumerate(zip(asked, thinks_s, later, strict=True))
    ]


def _asked(lines: Iterable[str]) -> Iterator[_Asked]:
    for number, line in records(lines, _Line, first_line=2):
        if line.warmroute_recording or line.status >= _FAILED_STATUS or not line.input_length:
            continue
        if line.timestamp is None:
            raise TraceError(number, "Object missing required field `timestamp`")
        hashes = _hashes(line.hashes, number)
        if len(hashes) != len(line.ends):
            raise TraceError(number, f"{len(hashes)} `hashes`, {len(line.ends)} `ends`")
        yield _Asked(line.timestamp / 1000, line, hashes)


def _hashes(text: str, number: int) -> Sequence[int]:
    found = array("Q")
    try:
        found.frombytes(b64decode(text, validate=True))
    except ValueError as error:
        raise TraceError(number, f"`hashes`: {error}") from None
    if sys.byteorder == "big":
        found.byteswap()
    return found


def _settle_ends(asked: Sequence[_Asked]) -> None:
    """Give each hash one end for the whole recording, the one it was first seen with.

    A recording estimates the ends inside a prompt, for each request anew. Two turns of a chat would not agree on where
    their common blocks lie, and share none; a prompt's own end, which its next turn finds again, is the engine's count.
    """
    known: dict[int, int] = {}
    for one in asked:
        one.ends = _settled(one, known)
        for block_hash, end in zip(one.hashes, one.ends, strict=True):
            known.setdefault(block_hash, end)


def _settled(one: _Asked, known: Mapping[int, int]) -> list[int]:
    """The known ends, and the others stretched over what is left of the prompt."""
    given, limit = one.line.ends, one.line.input_length
    settled = [min(known[block_hash], limit) for block_hash in takewhile(known.__contains__, one.hashes)]
    if len(settled) == len(given):
        return settled
    given_from, settled_from = (given[len(settled) - 1], settled[-1]) if settled else (0, 0)
    stretch = max(0, given[-1] - settled_from) / max(1, given[-1] - given_from)
    return settled + [settled_from + round((end - given_from) * stretch) for end in given[len(settled) :]]


def _identities(hashes: Sequence[int], ends: Sequence[int], prompt_tokens: int, block_tokens: int) -> list[int]:
    """The engine's full blocks; each is named by its place and the hash of the router's block that covers its end."""
    identities = []
    for number in range(prompt_tokens // block_tokens):
        covering = bisect_left(ends, (number + 1) * block_tokens)
        if covering == len(ends):
            break
        identities.append((hashes[covering] >> (64 - _IDENTITY_BITS)) + number)
    return identities


def _continued_by(asked: Sequence[_Asked]) -> list[int | None]:
    """For each request the next one whose prompt begins with all of its blocks."""
    found: list[int | None] = []
    latest: dict[int, int] = {}
    for number in reversed(range(len(asked))):
        hashes = asked[number].hashes
        found.append(latest.get(hashes[-1]) if hashes else None)
        latest.update(dict.fromkeys(hashes, number))
    return found[::-1]


def _with_answer(
    one: _Asked, blocks: Sequence[list[int]], own: int, after: int | None, block_tokens: int
) -> Iterable[int]:
    """The request's blocks, and those that its answer fills, which only a later prompt names."""
    if after is None:
        return blocks[own]
    filled = (one.line.input_length + one.line.output_length) // block_tokens
    return blocks[own] + blocks[after][len(blocks[own]) : filled]


def _think_times(asked: Sequence[_Asked]) -> list[float]:
    """Seconds from the end of a session's last answer; 0 for its first request, and for those without a session."""
    ended_s: dict[str, float] = {}
    thinks_s = []
    for one in asked:
        thinks_s.append(max(0.0, one.arrives_s - ended_s.get(one.line.session, one.arrives_s)))
        if one.line.session:
            ended_s[one.line.session] = one.arrives_s + one.line.total_s
    return thinks_s


def _request(one: _Asked, think_s: float, identities: Iterable[int], block_tokens: int) -> TraceRequest:
    return TraceRequest(
        session_id=one.line.session,
        arrives_s=one.arrives_s,
        think_s=think_s,
        prompt_tokens=one.line.input_length,
        output_tokens=one.line.output_length,
        finish_reason=one.line.finish_reason or "stop",
        block_tokens=block_tokens,
        block_runs=runs_of(identities),
        prompt_hashes=tuple(one.hashes),
        prompt_ends_tokens=tuple(one.ends),
    )
