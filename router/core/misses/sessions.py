"""Sessions: what is remembered of each conversation's last turn, and how its next turn is known again."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import xxhash

from router.core.bounded import LINK_BYTES, BoundedMap
from router.core.misses.change import common, difference, opening_difference, scope_changed, sketch_keys
from router.core.misses.links import HINT_BITS, OPEN_BITS, Link, pack, peek, session_of, tail_key, unpack
from router.core.misses.parts import (
    ANSWERS,
    LAST_OPERATOR,
    OPERATORS,
    PREVIOUS,
    Packed,
    codes_of,
    count_of,
    hash_parts,
    hashes_of,
    part_at,
)
from router.core.misses.turn import Origin, Recognised, Turn, next_of
from router.core.misses.types import Cause
from router.core.prompt import open_hash
from router.core.tokens import TurnEnds
from router.core.types import Part, Prompt, ReplicaId, RoutingRequest

SESSIONS_BYTES = 16 << 20
"""Some 8,000 conversations of 16 messages: many more than the caches of a fleet hold, and little beside its index."""

SHAPES = frozenset({"chat", "completions", "responses", "messages"})
"""What has turns."""

MOST_PARTS = 4_096
"""Messages above which a prompt has no account: to hash more, at 1.5 microseconds each, would hold up streams."""

RECENT = 64
"""Places looked at for the end of an earlier turn, the latest first: a client that went back further began anew."""

_hash = xxhash.xxh3_64_intdigest


class _Asked(NamedTuple):
    """A request of messages whose parts are hashed."""

    request: RoutingRequest
    prompt: Prompt
    parts: list[Part]
    packed: Packed
    ends: TurnEnds
    ended: bool


class Sessions:
    """Bounded memory of conversations: hashes, sizes and counts, and no text. Single-threaded."""

    def __init__(self, key: int, limit_bytes: int = SESSIONS_BYTES) -> None:
        """`key`: what session ids are made with, so that they say nothing of a prompt; 64 bits.

        `limit_bytes`: half is for sessions, half for the links by which they are found.
        """
        self._key = key
        self._limit_bytes = limit_bytes // 2
        self._turns: OrderedDict[int, Turn] = OrderedDict()
        self._turns_bytes = 0
        self._links: BoundedMap[int] = BoundedMap(limit_bytes * 3 // 8 // LINK_BYTES)
        self._openings: BoundedMap[int] = BoundedMap(limit_bytes // 8 // LINK_BYTES)

    def __len__(self) -> int:
        return len(self._turns)

    @property
    def size_bytes(self) -> int:
        """Memory of all that is remembered, each entry at its worst moment."""
        return self._turns_bytes + (len(self._links) + len(self._openings)) * LINK_BYTES

    # Recognition, which changes nothing

    def recognise(self, request: RoutingRequest, ends: TurnEnds, now: float, ended: bool = False) -> Recognised | None:
        """Find a request's session; None where it has none: no key, no turns, too long, or its history in an engine.

        `ends`: the turns that this router knows to be answered, whoever served them; `ended`: the end of these messages
        is among them only because the request itself has been answered. Hashes the prompt's parts and lets go of them.
        """
        prompt = request.prompt
        if prompt is None or not prompt.parts:
            return None
        parts = prompt.parts.copy()
        prompt.parts.clear()
        if request.shape not in SHAPES or len(parts) > MOST_PARTS:
            return None
        if request.shape == "responses" and any(part[1] == PREVIOUS for part in parts):
            return None
        leaf, text, end, packed = prompt.hashes[-1], prompt.open_text, None, b""
        if text is None:
            origin, packed = self._origin_of_messages(request, prompt, parts, ends, ended)
        else:
            rest = text[prompt.ends_bytes[-1] :]
            end = leaf, len(rest)
            leaf = open_hash(leaf, rest)
            origin = self._origin_of_text(prompt, text, leaf, ends)
        hint = request.session if request.session_is_explicit else None
        return Recognised(origin, now, packed, leaf, prompt.hashes[0], request.model, hint, end)

    def _origin_of_messages(
        self, request: RoutingRequest, prompt: Prompt, parts: list[Part], ends: TurnEnds, ended: bool
    ) -> tuple[Origin, Packed]:
        count, position, packed = self._last_end(prompt, parts)
        if packed is not None:
            session = session_of(packed)
            before = self._turns.get(session)
            if before is not None and before.ends(prompt, position, count):
                if count == len(parts):
                    return next_of(session, before, again=True), before.parts
                return next_of(session, before), before.parts + hash_parts(parts[count:], self._sketches_of)
        asked = _Asked(request, prompt, parts, hash_parts(parts, self._sketches_of), ends, ended)
        return self._origin_elsewhere(asked, count, None if packed is None else unpack(packed)), asked.packed

    def _origin_elsewhere(self, asked: _Asked, count: int, link: Link | None) -> Origin:
        """Find what a prompt goes on from that is no plain continuation of a session's last turn."""
        answered = self._last_answered(asked, count)
        if answered is not None:
            return answered
        origin = self._by_tail(asked, count)
        if origin is None and link is not None:
            origin = self._branch(asked, link, again=count == len(asked.parts))
        return origin or self._by_hint(asked) or self._first(asked)

    def _last_end(self, prompt: Prompt, parts: list[Part]) -> tuple[int, int, int | None]:
        """Find the last turn that ended within a prompt: parts and blocks up to there, and its packed link."""
        hashes, opening, last = prompt.hashes, prompt.opening_blocks, -1
        older, newer = self._links.halves()
        for count in range(len(parts), max(0, len(parts) - RECENT), -1):
            position = parts[count][3] if count < len(parts) else len(hashes)
            if position <= opening:
                break  # what is left is the operator's
            if position != last:
                key = hashes[position - 1]
                packed = newer.get(key) or older.get(key)
                if packed is not None:
                    return count, position, packed
                last = position
        return 0, 0, None

    def _last_answered(self, asked: _Asked, least: int) -> Origin | None:
        """Find a turn after the first `least` parts that another router has served, or this one before a new start."""
        _, prompt, parts, packed, ends, ended = asked
        own = len(prompt.hashes) if ended else 0
        for count in range(len(parts), max(least, len(parts) - RECENT), -1):
            position = parts[count][3] if count < len(parts) else len(prompt.hashes)
            if position <= prompt.opening_blocks:
                break
            if position != own and ends.knows(prompt.hashes[position - 1]):
                tokens = ends.deepest(prompt, position).prompt_tokens
                answers = sum(code in ANSWERS for code in codes_of(packed))
                return Origin(self._new_session(prompt.hashes[-1]), max(1, answers) + 1, tokens=tokens)
        return None

    def _by_tail(self, asked: _Asked, first: int) -> Origin | None:
        """Find a session whose last turn ended with messages that this prompt has, too, and goes on from."""
        count = len(asked.parts)
        for place in range(count - 2, max(first, count - RECENT) - 1, -1):
            key = tail_key(asked.packed, place)
            packed = None if key is None else peek(self._links, key)
            if packed is not None:
                session = session_of(packed)
                before = self._turns.get(session)
                if before is not None and tail_key(before.parts, -1) == key:
                    return self._changed(session, before, asked)
        return None

    def _changed(self, session: int, before: Turn, asked: _Asked) -> Origin:
        request, prompt, parts, packed, *_ = asked
        change = difference(before.parts, packed, parts)
        if before.model != request.model:
            change = scope_changed(Cause.MODEL_CHANGED)
        elif (change is None or change.kept_ratio > 0.0) and before.root != prompt.hashes[0]:
            # The first part is the same: so were its first block, if it were not in another scope.
            change = scope_changed(Cause.SALT_CHANGED)
        return Origin(session, before.number + 1, before, before.prompt_tokens, before.reported, change)

    def _by_hint(self, asked: _Asked) -> Origin | None:
        """Believe a session header, if any message of the session's last turn is in this prompt.

        Some clients send one id, a user's, with all their conversations.
        """
        request = asked.request
        if request.session is None or not request.session_is_explicit:
            return None
        packed = peek(self._links, request.session ^ HINT_BITS)
        session = 0 if packed is None else session_of(packed)
        before = self._turns.get(session)
        if before is None or _own(before.parts).isdisjoint(_own(asked.packed)):
            return None
        return self._changed(session, before, asked)

    def _branch(self, asked: _Asked, link: Link, again: bool) -> Origin:
        """Go on from an earlier turn than the last: one whose last message was edited is the same session."""
        session, before = link.session, self._turns.get(link.session)
        if before is not None and not _only_last_differs(before.parts, asked.packed):
            session, before = self._new_session(asked.prompt.hashes[-1], before.leaf), None
        return Origin(session, link.number + (not again), before, link.tokens, link.reported)

    def _first(self, asked: _Asked) -> Origin:
        change = opening_difference(asked.packed, asked.parts, self._sketches_of, self._size_of)
        return Origin(self._new_session(asked.prompt.hashes[-1]), 1, change=change)

    def _origin_of_text(self, prompt: Prompt, text: bytes | memoryview, whole: int, ends: TurnEnds) -> Origin:
        for position in range(len(prompt.hashes), max(0, len(prompt.hashes) - 4 * RECENT), -1):
            leaf, start = prompt.hashes[position - 1], prompt.ends_bytes[position - 1]
            rest_bytes = peek(self._links, leaf ^ OPEN_BITS)
            if rest_bytes is None or start + rest_bytes > len(text):
                continue
            key = open_hash(leaf, text[start : start + rest_bytes])
            packed = peek(self._links, key)
            if packed is not None:
                return self._continued_text(unpack(packed), key, whole)
        known = ends.deepest(prompt, len(prompt.hashes))
        return Origin(self._new_session(whole), 1 + (known.blocks > 0), tokens=known.prompt_tokens)

    def _continued_text(self, link: Link, leaf: int, whole: int) -> Origin:
        before, session = self._turns.get(link.session), link.session
        if before is not None and before.leaf != leaf:
            session, before = self._new_session(whole, before.leaf), None
        return Origin(session, link.number + (leaf != whole), before, link.tokens, link.reported)

    def _new_session(self, leaf: int, salt: int = 0) -> int:
        return _hash(leaf.to_bytes(8, "little"), self._key ^ salt) >> 16

    def _sketches_of(self, exact: int) -> int | None:
        return peek(self._openings, exact)

    def _size_of(self, key: int) -> int | None:
        return peek(self._openings, key)

    # Learning

    def learn(
        self, seen: Recognised, prompt_tokens: int, reported: bool, replica: ReplicaId, epoch: int, now: float
    ) -> None:
        """Remember a turn that was served. `prompt_tokens`: as the engine `reported` them, or estimated."""
        origin, leaf, parts = seen.origin, seen.leaf, seen.parts
        session, number = origin.session, origin.number
        self._keep(
            session, Turn(number, leaf, seen.root, seen.model, prompt_tokens, reported, replica, epoch, now, parts)
        )
        put = self._links.put
        put(leaf, pack(session, prompt_tokens, number, reported))
        if seen.text_end is not None:
            put(seen.text_end[0] ^ OPEN_BITS, seen.text_end[1])
            return
        tail = tail_key(parts, -1)
        if tail is not None:
            put(tail, pack(session))
        if seen.hint is not None:
            put(seen.hint ^ HINT_BITS, pack(session))
        if origin.before is None or origin.change is not None:
            self._learn_opening(parts)

    def _keep(self, session: int, turn: Turn) -> None:
        turns = self._turns
        replaced = turns.pop(session, None)
        turns[session] = turn
        self._turns_bytes += turn.size_bytes
        if replaced is not None:
            self._turns_bytes -= replaced.size_bytes
        while self._turns_bytes > self._limit_bytes:
            self._turns_bytes -= turns.popitem(last=False)[1].size_bytes

    def _learn_opening(self, parts: Packed) -> None:
        get, put = self._openings.get, self._openings.put
        for place in range(count_of(parts)):
            exact, sketches, size = part_at(parts, place)
            code = size & 0xFF
            if code > LAST_OPERATOR:
                return
            words, plain = sketch_keys(code, sketches)
            if get(exact) is None or get(words) is None or get(plain) is None:
                put(exact, sketches)
                put(words, size >> 8)
                put(plain, size >> 8)


def _own(parts: Packed) -> set[int]:
    """Return the exact hashes of what is not the operator's."""
    pairs = zip(hashes_of(parts), codes_of(parts), strict=True)
    return {exact for exact, code in pairs if code not in OPERATORS}


def _only_last_differs(old: Packed, new: Packed) -> bool:
    """Tell whether what differs comes after the last answer in `old`."""
    return all(code not in ANSWERS for code in codes_of(old)[common(old, new) :])
