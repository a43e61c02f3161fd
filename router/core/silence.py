"""Replicas that accept requests and say nothing: told from busy ones by what others do meanwhile."""

from __future__ import annotations

from collections.abc import Collection

from router.core.health import State
from router.core.replica import Replica

SILENT_S = 5.0
"""Silence beyond any pause of a process that works: a collection of garbage, a compilation of a new shape."""

SLACK = 2.0
"""Times that a prefill may take longer than predicted: the speed is learnt as a mean, and falls under load."""

MUTE_RATIO = 2.0
"""Times the silence that makes a replica suspect, after which it is left: its requests are tried elsewhere."""

ANSWER_SLACK = 3.0
"""Times that an answer in one piece may take longer than the longest of late."""

UNKNOWN_ANSWER_S = 60.0
"""Taken for the longest answer in one piece before there was any: 2,000 tokens at 30 ms each."""


def judge(everyone: Collection[Replica], longest_answer_s: float | None, now: float) -> list[Replica]:
    """Judge all replicas by their silence; return those that are ejected for it now.

    `longest_answer_s`: the longest answer in one piece of late, None before the first. Such an answer says nothing
    until it is complete, so it has that much more time. A fleet in which nobody speaks is not judged: it may be us.
    """
    waiting = [replica for replica in everyone if replica.ledger.unanswered]
    return [replica for replica in waiting if _is_mute(replica, everyone, longest_answer_s, now)]


def _is_mute(replica: Replica, everyone: Collection[Replica], longest_answer_s: float | None, now: float) -> bool:
    """Judge by the first of its streams and the first of its answers in one piece: either may be the sooner to tell."""
    unanswered = replica.ledger.unanswered.values()
    firsts = {entry.streaming: entry for entry in reversed(unanswered)}
    prefill_s = replica.ledger.unanswered_s
    silence_ratio = 0.0
    for entry in firsts.values():
        since_s = max(entry.dispatched_s, replica.heard_s)
        if any(other.heard_s > since_s for other in everyone if other is not replica):
            limit_s = _limit_s(prefill_s, entry.streaming, longest_answer_s)
            silence_ratio = max(silence_ratio, (now - since_s) / limit_s)
    mute = silence_ratio > MUTE_RATIO
    if silence_ratio <= 1.0 or (replica.health.state is State.DRAINING and not mute):
        return False
    return replica.health.silent(now, mute)


def _limit_s(prefill_s: float, streaming: bool, longest_answer_s: float | None) -> float:
    limit_s = SILENT_S + SLACK * prefill_s
    if streaming:
        return limit_s
    return limit_s + ANSWER_SLACK * (UNKNOWN_ANSWER_S if longest_answer_s is None else longest_answer_s)
