"""The account of a turn: what of its history was cached, what was lost, and to which cause."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from router.core.fleet import Fleet
from router.core.health import State
from router.core.misses.turn import Recognised
from router.core.misses.types import Cause, Change, TurnAccount
from router.core.replica import DEFAULT_BLOCK_TOKENS
from router.core.ticket import Ticket
from router.core.tokens import ESTIMATED_RATIO
from router.core.types import Decision, Outcome, OutcomeKind, Prompt, Reason, ReplicaId, Usage

LEAST_LOST_BLOCKS = 2
"""Blocks of the engine below which nothing is taken for lost: it rounds down, and always computes a prompt's end."""

_MOVED = {
    Reason.SPILLED: Cause.SPILLED,
    Reason.FAILOVER: Cause.FAILOVER,
    Reason.DRAINED: Cause.DRAINED,
    Reason.POLICY: Cause.POLICY,
}
_CUT_SHORT = frozenset({OutcomeKind.CLIENT_LEFT, OutcomeKind.DIED})


class _History(msgspec.Struct, frozen=True, gc=False):
    """What could have been cached of a prompt; tokens, in whole blocks."""

    tokens: int
    exact: bool
    change: Change | None
    first: bool
    """No turn before is known."""


def served(ticket: Ticket, outcome: Outcome) -> bool:
    """Tell whether an attempt's end leaves its prompt computed: it is a turn that the next one can go on from."""
    begun = ticket.first_byte_s is not None and outcome.kind in _CUT_SHORT
    return (begun or outcome.kind is OutcomeKind.COMPLETED) and (outcome.status or 200) < 400


def account(
    fleet: Fleet,
    seen: Recognised,
    prompt: Prompt,
    decision: Decision,
    usage: Usage,
    tried: Collection[ReplicaId] = (),
) -> TurnAccount:
    """Account for a turn that was served, or with an empty `usage` for one that will be as predicted.

    `tried`: replicas that failed before the chosen one.
    """
    replica = fleet.get(decision.replica)
    block = DEFAULT_BLOCK_TOKENS if replica is None else replica.block_tokens
    cached = decision.matched_tokens if usage.cached_tokens is None else usage.cached_tokens
    history = _history(seen, prompt, decision, usage.prompt_tokens or decision.prompt_tokens, block)
    lost = history.tokens - cached
    least = LEAST_LOST_BLOCKS * block
    if lost < (least if history.exact else max(least, ESTIMATED_RATIO * history.tokens)):
        lost = 0
    cause = _cause(fleet, seen, prompt, decision, tried, history, cached) if lost else None
    if cause is None and history.first:
        cause = Cause.FIRST_SEEN
    return TurnAccount(
        seen.session_id, seen.origin.number, seen.idle_s, history.tokens, cached, lost, cause, history.change
    )


def _history(seen: Recognised, prompt: Prompt, decision: Decision, prompt_tokens: int, block: int) -> _History:
    if seen.origin.number > 1 or seen.origin.tokens:
        tokens = min(seen.origin.tokens, prompt_tokens - 1) // block * block
        change = None if seen.origin.change is None else seen.origin.change.change(seen.origin.tokens)
        return _History(tokens, seen.origin.reported, change, first=False)
    tokens = _best(prompt, decision) // block * block
    if seen.origin.change is None:
        return _History(tokens, False, None, first=True)
    opening = _tokens_of(prompt, prompt.opening_blocks, decision) // block * block
    return _History(max(tokens, opening), False, seen.origin.change.change(prompt_tokens), first=True)


def _best(prompt: Prompt, decision: Decision) -> int:
    """Return the most tokens that any replica was believed to hold, whatever a session hint adds to their scores."""
    blocks = {score.replica: score.matched_blocks for score in decision.scores}
    most = max(blocks.values(), default=0)
    if blocks.get(decision.replica, 0) == most:
        return decision.matched_tokens
    return _tokens_of(prompt, most, decision)


def _tokens_of(prompt: Prompt, blocks: int, decision: Decision) -> int:
    """Estimate the tokens of leading blocks, in proportion to the whole prompt's."""
    return int(decision.prompt_tokens * prompt.ends_bytes[blocks - 1] / prompt.total_bytes) if blocks else 0


def _cause(
    fleet: Fleet,
    seen: Recognised,
    prompt: Prompt,
    decision: Decision,
    tried: Collection[ReplicaId],
    history: _History,
    cached: int,
) -> Cause:
    """Return what most of the lost tokens are lost to: what the client changed, or what became of the rest."""
    kept = history.tokens
    if history.change is not None:
        kept = min(kept, history.change.kept_tokens)
        if history.tokens - kept >= kept - cached:
            return history.change.cause
    if history.first:
        return Cause.EVICTED if _best(prompt, decision) <= decision.matched_tokens else Cause.SPREAD
    return _cause_elsewhere(fleet, seen, prompt, decision, tried, kept, cached)


def _cause_elsewhere(
    fleet: Fleet,
    seen: Recognised,
    prompt: Prompt,
    decision: Decision,
    tried: Collection[ReplicaId],
    kept: int,
    cached: int,
) -> Cause:
    """Return why what the client left as it was is not cached."""
    before = seen.origin.before
    last = None if before is None else before.replica
    if last is not None and last in tried:
        return Cause.FAILOVER
    home = last or decision.home
    if home is None:
        return Cause.EVICTED
    replica = fleet.get(home)
    if before is not None and replica is not None and replica.mirror.epoch != before.epoch:
        return Cause.RESTARTED
    if home == decision.replica:
        return Cause.EVICTED
    score = next((score for score in decision.scores if score.replica == home), None)
    if score is not None:
        held = min(kept, _tokens_of(prompt, score.matched_blocks, decision))
        return Cause.EVICTED if held - cached < kept - held else _MOVED.get(decision.reason, Cause.SPILLED)
    if replica is not None and before is not None and not replica.mirror.holds(before.leaf):
        return Cause.EVICTED
    return Cause.DRAINED if replica is not None and replica.health.state is State.DRAINING else Cause.FAILOVER
