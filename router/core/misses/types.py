"""The account of one turn: how much of its history was cached, how much was not, and why."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Cause(StrEnum):
    """Why prompt tokens that could have been cached were computed again. A metric label, a log field, a header."""

    FIRST_SEEN = "first-seen"
    """No earlier turn of this session is known here: nothing could have been cached, so nothing is lost."""
    SPREAD = "spread"
    """A first turn whose beginning another replica holds: new sessions are spread, so that no replica gets them all."""
    EVICTED = "evicted"
    """The replica that had the history needed the memory before the turn came."""
    RESTARTED = "restarted"
    """The replica that had the history lost its cache: its process is another one, or it was put to sleep."""
    SPILLED = "spilled"
    """Sent away from a home that still has the history, and where waiting would have cost more."""
    FAILOVER = "failover"
    """Sent away from a home that was not available."""
    DRAINED = "drained"
    """Sent away from a home that is being drained."""
    POLICY = "policy"
    """Sent away by a policy that does not look at residency."""
    MODEL_CHANGED = "model-changed"
    """The same conversation for another model or adapter."""
    SALT_CHANGED = "salt-changed"
    """The same conversation with another `cache_salt`."""
    TEMPLATE_CHANGED = "template-changed"
    """The chat template, its arguments or the documents before the conversation differ."""
    TOOLS_CHANGED = "tools-changed"
    """The tool list differs."""
    TOOLS_REORDERED = "tools-reordered"
    """The same tools in another order."""
    SYSTEM_CHANGED = "system-changed"
    """The system prompt differs."""
    STAMPED = "stamped"
    """A message differs in nothing but numbers: a time stamp, a counter, an id."""
    REFORMATTED = "reformatted"
    """A message differs in nothing but white space and punctuation."""
    HEAD_TRIMMED = "head-trimmed"
    """The first messages after the system prompt were cut."""
    EDITED = "edited"
    """An earlier message was changed, cut out or put in."""


class Change(msgspec.Struct, frozen=True, gc=False):
    """Where a prompt departs from the turn before it."""

    cause: Cause
    message: int | None
    """Index in the request's messages of the first one that differs; None: before the messages."""
    role: str
    """Whose message that is: system, user, assistant, tool, call, media, tools, template or other."""
    kept_tokens: int
    """Estimated prompt tokens before it, which are as they were."""


class TurnAccount(msgspec.Struct, frozen=True, gc=False):
    """What became of one turn's history. Tokens."""

    session: str
    """Opaque id of the session, the same for all its turns in this router."""
    number: int
    """Of the turn, from 1, as far as this router knows."""
    idle_s: float | None
    """From the end of the turn before to this one's arrival: how long its blocks would have had to live."""
    history_tokens: int
    """What could have been cached: the prompt of the turn before, or for a first turn what any replica holds."""
    cached_tokens: int
    """What was: as the engine says, or where it does not, as predicted."""
    lost_tokens: int
    """What could have been cached and was computed again."""
    cause: Cause | None
    """Why, for the largest part; FIRST_SEEN for a first turn that lost nothing; None for a turn that hit."""
    change: Change | None
    """What the client changed of its history, if it did."""
