"""The price of a replica for a request, in seconds, term by term. To change a term, change it here and replay.

total = queue + own + balance + evicted + streams; each term has a page in docs/explanation/terms/.
"""

from __future__ import annotations

from typing import NamedTuple

from router.core.policy import Ask, Policy
from router.core.recent import RECENT_S
from router.core.replica import Replica
from router.core.types import Score

MOST_UTILISED = 0.95
"""Above this the fleet is full, and what is computed delays all that come for as long as it is."""


MOVE_S = 0.5
"""What it costs to leave a home whatever is there: a short session is computed again in no time, but who names a
session, or looks at reasons, wants to see it stay where nothing is gained that anybody would notice."""


class Weights(NamedTuple):
    """What a second of each term counts for beside a second of the request's own waiting. 0 leaves a term out.

    Found by replay (docs/adr/0013-price-again.md), with the best rival's figures on the same traffic beside them.
    """

    delay: float = 1.0
    """Somebody else's waiting."""
    following: float = 5.0
    """Own work, beside itself, where nobody is delayed: the session's next turns come after it."""
    share: float = 6.0
    """A new session's whole prefill on a replica that has had the fleet's mean of recent work."""
    crowded_share: float = 0.5
    """The same, for each request that its prefill would delay."""
    evicted: float = 8.0
    """Work to be done again for lack of room, where nobody is delayed."""
    stream: float = 0.3
    """Waiting for the end of an answer, one's own and others'. Less than for its beginning: at 1 the hits that are
    given up for even streams cost chats a tenth of their TTFT."""


class Crowd(NamedTuple):
    """What goes on around a decision."""

    delayed_per_s: float
    """Requests that come to one replica until a second of work is worked off, and what came meanwhile as well: their
    rate / (1 - utilisation) (the busy period that begins with it in M/G/1: Kleinrock, Queueing Systems I, 1975, 5.9).
    Each of them waits for as much longer as is added now."""
    mean_work_s: float
    """Recent work of a replica, mean of the candidates (in a large fleet, of a sample)."""
    whole_s: float
    """Prefill of a new session's whole prompt, mean of the same; 0 for a session that goes on."""


def priced(weights: Weights) -> Policy:
    """Return the policy that prices every candidate by these weights."""

    def price(ask: Ask) -> list[Score]:
        crowd = crowd_of(ask)
        home_tokens = max(ask.matched_tokens) if ask.follow_up else 0
        rows = zip(ask.candidates, ask.matched_blocks, ask.matched_tokens, ask.reloaded_tokens, strict=True)
        return [_score(weights, crowd, ask, home_tokens, *row) for row in rows]

    return price


def _score(
    weights: Weights,
    crowd: Crowd,
    ask: Ask,
    home_tokens: int,
    replica: Replica,
    blocks: int,
    matched: int,
    reloaded: int,
) -> Score:
    now = ask.now
    own_s = replica.prefill.seconds(ask.prompt_tokens - matched, matched, reloaded)
    queue_s = replica.priced_queue_s(now, own_s)
    balance_s = own_s * (weights.following + weights.delay * crowd.delayed_per_s * (queue_s + own_s))
    if not ask.follow_up:
        balance_s += share_s(weights, crowd, replica, ask)
    elif matched < home_tokens:
        balance_s += MOVE_S
    evicted_s = replica.tail_chance(now) * own_s * (weights.evicted + weights.delay * crowd.delayed_per_s)
    streams_s = weights.stream * streams_s_of(replica, ask)
    total_s = queue_s + own_s + balance_s + evicted_s + streams_s
    return Score(replica.replica_id, total_s, queue_s, own_s, balance_s, blocks, matched, evicted_s, streams_s)


affinity = priced(Weights())


def crowd_of(ask: Ask) -> Crowd:
    """Return how crowded the candidates are, by what was sent to them of late."""
    replicas = ask.sample or ask.candidates
    now, count = ask.now, len(replicas)
    work_s = requests = whole_s = 0.0
    for replica in replicas:
        recent = replica.recent
        work_s += recent.work_s(now)
        requests += recent.requests(now)
        if not ask.follow_up:
            whole_s += replica.prefill.seconds(ask.prompt_tokens)
    idle_ratio = 1.0 - min(MOST_UTILISED, work_s / (count * RECENT_S))
    return Crowd(requests / (count * RECENT_S) / idle_ratio, work_s / count, whole_s / count)


def share_s(weights: Weights, crowd: Crowd, replica: Replica, ask: Ask) -> float:
    """Return what a new session's future is charged on a replica: by its part in the recent work, 1 being the mean.

    A shared prefix attracts until its replica has had more than its fair share, and costs one prefill per replica after
    that. Work is in seconds, so a fast replica's share is more tokens; what is charged is the same on all. At each
    one's own speed slow replicas would pay twice, and get next to nothing (speeds 1 : 3, chats at 6/s: TTFT p95 .80 s
    so, .65 with the mean).
    """
    work_s = replica.recent.work_s(ask.now)
    if not work_s:
        return 0.0
    share = work_s / max(crowd.mean_work_s, work_s / len(ask.candidates))
    return (weights.share + weights.crowded_share * crowd.delayed_per_s) * crowd.whole_s * share


def streams_s_of(replica: Replica, ask: Ask) -> float:
    """Return what waits for an answer's decoding: its own tokens for the other streams, and theirs for it."""
    streams = replica.streams
    if not streams:
        return 0.0
    return ask.answer_tokens * replica.decode.crowding_s(streams, replica.ledger.context_tokens, ask.prompt_tokens)
