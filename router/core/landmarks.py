"""Landmarks: the few prefixes of a prompt under which it is found again by a router that has not seen it.

Not every block: the ends of turns, where a session goes on, and of what sessions share. Where a prompt's structure does
not say (a text to be completed), every `STRIDE_BLOCKS`-th block.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from router.core.fleet import Fleet
from router.core.price import affinity
from router.core.prompt import open_hash
from router.core.types import Prompt, ReplicaId, RoutingRequest

STRIDE_BLOCKS = 8
"""About 1,000 tokens of a text: what is missed behind a landmark costs less than a tenth of a second to prefill."""

RECENT_BLOCKS = 16
"""Of a text, asked for one by one: about 2,000 tokens, so that a turn's end is found if the next turn adds no more."""

MAX_ASKED = 16
"""Turn ends or strides asked for, the latest first: an edit 16 turns back is rarer than a restart of the router."""

SAME_START_S = 1.0
"""Two readings of an engine's start time (a Unix time) that differ by less are the same start."""


class Landmark(NamedTuple):
    """One prefix of an answered prompt, to be written down for others."""

    block: int
    """Hash of its last whole block."""
    prompt_tokens: int = 0
    """Tokens of the turn that ended here; 0: none did."""
    answer_tokens: int = 0
    rest_bytes: int = 0
    """What followed the last whole block of a text."""
    rest: int | None = None
    """Hash of that; None for messages."""


class Question(NamedTuple):
    """What this router does not know of a request and another may."""

    prompt: Prompt | None
    positions: list[int]
    """Numbers of leading blocks, the longest first."""
    homes: list[int]
    """Hashes of sessions and stored objects."""
    must_be_found: bool = False
    """A stored object is named, which only the replica that has it can serve."""


class Holder(NamedTuple):
    """A replica that was said to hold a prefix."""

    replica: ReplicaId
    engine_start_s: float | None
    """When its engine had started, Unix time: another start has another cache."""


class Found(NamedTuple):
    """What is said of one prefix."""

    position: int
    holders: list[Holder]
    prompt_tokens: int = 0
    answer_tokens: int = 0
    rest_bytes: int = 0


class Recollection(NamedTuple):
    """An answer to a question."""

    found: list[Found]
    homes: list[tuple[int, ReplicaId]]


def landmarks(prompt: Prompt, prompt_tokens: int, answer_tokens: int) -> list[Landmark]:
    """Return the landmarks of a prompt that was answered, the end of this turn first."""
    hashes, text = prompt.hashes, prompt.open_text
    if text is None:
        turn_end = Landmark(hashes[-1], prompt_tokens, answer_tokens)
    else:
        rest = text[prompt.ends_bytes[-1] :]
        turn_end = Landmark(hashes[-1], prompt_tokens, answer_tokens, len(rest), open_hash(hashes[-1], rest))
    position = _shared_end(prompt)
    return [turn_end, Landmark(hashes[position - 1])] if 0 < position < len(hashes) else [turn_end]


def _shared_end(prompt: Prompt) -> int:
    """Return the prefix that others may share; 0 in later turns of a chat: its first turn has written that."""
    if prompt.open_text is not None:
        return len(prompt.hashes) // STRIDE_BLOCKS * STRIDE_BLOCKS
    return 0 if prompt.answers_at else prompt.opening_blocks


def question(fleet: Fleet, request: RoutingRequest) -> Question | None:
    """Return what is to be asked before `request` is routed; None when all that matters is known here."""
    index, prompt = fleet.index, request.prompt
    homes = [key for key in (request.session, request.stored) if key is not None and key not in index.homes]
    positions: list[int] = []
    if prompt is not None and fleet.policy is affinity and not _is_known(fleet, prompt):
        positions = asked(prompt)
    if not positions and not homes:
        return None
    return Question(prompt, positions, homes, request.stored is not None and request.stored in homes)


def _is_known(fleet: Fleet, prompt: Prompt) -> bool:
    """Tell whether the last turn, or what sessions share, is known: then nothing longer is to be found elsewhere."""
    turns, hashes = fleet.index.turns, prompt.hashes
    if prompt.open_text is not None:
        return turns.deepest(prompt, len(hashes)).blocks > 0
    if prompt.answers_at and prompt.answers_at[-1]:
        return turns.knows(hashes[prompt.answers_at[-1] - 1])
    shared = hashes[max(1, prompt.opening_blocks) - 1]
    return any(replica.mirror.holds(shared) for replica in fleet)


def asked(prompt: Prompt) -> list[int]:
    """Return the prefixes under which a prompt may be known elsewhere, as numbers of leading blocks, longest first."""
    length = len(prompt.hashes)
    if prompt.open_text is not None:
        positions = set(range(max(1, length - RECENT_BLOCKS), length + 1))
        last = length // STRIDE_BLOCKS * STRIDE_BLOCKS
        positions.update(range(last, max(0, last - MAX_ASKED * STRIDE_BLOCKS), -STRIDE_BLOCKS))
    else:
        positions = {length, prompt.opening_blocks, *prompt.answers_at[-MAX_ASKED:]} - {0}
    return sorted(positions, reverse=True)


def rest_hash(prompt: Prompt, position: int, rest_bytes: int) -> int | None:
    """Hash what follows the first `position` blocks of a text; None for messages, or where the text is shorter."""
    if prompt.open_text is None:
        return None
    start = prompt.ends_bytes[position - 1]
    rest = prompt.open_text[start : start + rest_bytes]
    return open_hash(prompt.hashes[position - 1], rest) if len(rest) == rest_bytes else None


def recollect(fleet: Fleet, asked_for: Question, recollection: Recollection, now: float) -> bool:
    """Take in what others knew; return whether it taught anything. Each replica counts with its longest prefix."""
    learnt = False
    for key, replica_id in recollection.homes:
        if key not in fleet.index.homes:
            fleet.index.homes.put(key, replica_id)  # one that has left, too: a session is moved from where it stands
            learnt = learnt or replica_id in fleet
    if asked_for.prompt is None:
        return learnt
    seen: set[ReplicaId] = set()
    for found in sorted(recollection.found, reverse=True):
        holders = [holder.replica for holder in found.holders if _holds_still(fleet, holder)]
        if holders:
            # In the order of the answer: that of a set is another one in each process, and so would decisions be.
            _learn(fleet, asked_for.prompt, found, [one for one in dict.fromkeys(holders) if one not in seen], now)
            seen.update(holders)
            learnt = True
    return learnt


def _learn(fleet: Fleet, prompt: Prompt, found: Found, holders: Iterable[ReplicaId], now: float) -> None:
    prefix = _prefix(prompt, found.position, found.rest_bytes)
    for replica_id in holders:
        fleet.index.learn(fleet[replica_id].mirror, prefix, now)
    if found.prompt_tokens:
        fleet.index.turns.put(prefix, found.prompt_tokens, found.answer_tokens)


def _prefix(prompt: Prompt, position: int, rest_bytes: int) -> Prompt:
    ends, text = prompt.ends_bytes[:position], prompt.open_text
    open_text = None if text is None else text[: ends[-1] + rest_bytes]
    return Prompt(prompt.hashes[:position], ends, [], prompt.bytes_per_token, open_text)


def _holds_still(fleet: Fleet, holder: Holder) -> bool:
    replica = fleet.get(holder.replica)
    if replica is None:
        return False
    start_s = replica.report.start_time_s
    return start_s is None or holder.engine_start_s is None or abs(start_s - holder.engine_start_s) <= SAME_START_S
