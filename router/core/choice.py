"""One decision: what each candidate is believed to hold, what it costs there, and one word why."""

from __future__ import annotations

from typing import NamedTuple

from router.core.engine_cache.crediting import blocks_within, held_of
from router.core.policy import Ask, Policy
from router.core.price import affinity
from router.core.replica import Replica
from router.core.token_size import PRIOR_ANSWER_TOKENS
from router.core.tokens import TokenScale
from router.core.types import Decision, Prompt, Reason, ReplicaId, RoutingRequest, Score

BYTES_PER_TOKEN = 4.0
"""For requests that were not read: the usual length of a token of English."""

MAX_UNREAD_TOKENS = 2_000
"""What an unread body counts for at the most: an audio file of 20 MB is no prompt of 5 million tokens."""


class Known(NamedTuple):
    """What the fleet's memory says of a request before anything is priced. Lists run parallel to `candidates`."""

    candidates: list[Replica]
    blocks: list[int]
    scale: TokenScale | None
    hinted: ReplicaId | None
    """Home by session hint, where the hint counts."""
    lost: ReplicaId | None
    """A replica that holds the session's history and is not among the candidates."""
    stored_at: ReplicaId | None
    """The replica that stores the object which the request names; no other can serve it."""
    retry: bool
    last_resort: bool = False
    """None of the candidates is fit."""
    drained: bool = False
    """The `lost` one is being drained."""
    answer_tokens: float = PRIOR_ANSWER_TOKENS
    """Usual length of an answer of the model."""
    sample: list[Replica] | None = None
    """Of a large fleet's candidates those that stand for all of it; None: the candidates are all there are."""


def choose(known: Known, policy: Policy, request: RoutingRequest, now: float) -> Decision:
    """Price all candidates (at least one) and take the cheapest; ties go to the least recently chosen."""
    prompt_tokens = _prompt_tokens(known, request)
    known, held, reloaded = _as_engines_say(known, _held_tokens(known, request), request, prompt_tokens)
    candidates, blocks, scale = known.candidates, known.blocks, known.scale
    hinted = _index_of(candidates, known.hinted)
    anchor = scale.anchor if scale else 0
    history = anchor > 0
    credited = held if hinted is None else _credited_by_hint(held, blocks, anchor, hinted, prompt_tokens)
    follow_up = history or hinted is not None
    answer_tokens = known.answer_tokens
    scores = policy(
        Ask(candidates, prompt_tokens, blocks, credited, follow_up, request, now, reloaded, answer_tokens, known.sample)
    )
    best = _index_of(candidates, known.stored_at)
    if best is None:
        best = _cheapest(candidates, scores, request.model)
    home = known.hinted or known.lost
    if home is None and history:
        home = candidates[blocks.index(max(blocks))].replica_id
    reason = _reason(known, request, policy, best)
    found = candidates[best].replica_id
    return Decision(found, reason, scores, prompt_tokens, held[best], home, reloaded[best])


def _credited_by_hint(held: list[int], blocks: list[int], anchor: int, hinted: int, prompt_tokens: int) -> list[int]:
    """Credit the hinted home with everything, and nobody else with this session's own history: the hint wins."""
    credited = [0 if anchor and matched >= anchor else tokens for matched, tokens in zip(blocks, held, strict=True)]
    credited[hinted] = prompt_tokens
    return credited


def _index_of(candidates: list[Replica], replica_id: ReplicaId | None) -> int | None:
    if replica_id is None:
        return None
    return next((index for index, replica in enumerate(candidates) if replica.replica_id == replica_id), None)


def _cheapest(candidates: list[Replica], scores: list[Score], model: str) -> int:
    best, lowest = 0, scores[0].total_s
    for index, score in enumerate(scores):
        total = score.total_s
        if total < lowest or (total == lowest and _waits_longer(candidates[index], candidates[best], model)):
            best, lowest = index, total
    return best


def _waits_longer(one: Replica, other: Replica, model: str) -> bool:
    """Tell whether one was chosen less recently than the other: for this model, else at all."""
    mine, others = one.chosen_for.get(model, 0), other.chosen_for.get(model, 0)
    return (mine, one.last_chosen) < (others, other.last_chosen)


def _held_tokens(known: Known, request: RoutingRequest) -> list[int]:
    scale, prompt = known.scale, request.prompt
    if scale is None or prompt is None:
        return [0] * len(known.candidates)
    anchor, hashes = scale.anchor, prompt.hashes
    last_blocks = last_tokens = 0  # most replicas hold the same shared prefix
    held: list[int] = []
    for replica, blocks in zip(known.candidates, known.blocks, strict=True):
        if blocks != last_blocks or (blocks and blocks == anchor):
            answer = blocks == anchor and replica.mirror.holds_answer(hashes[anchor - 1])
            last_blocks, last_tokens = blocks, scale.cached_tokens(blocks, replica.block_tokens, answer)
        held.append(last_tokens)
    return held


def _prompt_tokens(known: Known, request: RoutingRequest) -> int:
    if request.tokens is not None:
        return max(1, len(request.tokens))
    if known.scale is not None:
        return known.scale.total
    return max(1, min(MAX_UNREAD_TOKENS, int(request.body_bytes / BYTES_PER_TOKEN)))


def _as_engines_say(
    known: Known, estimated: list[int], request: RoutingRequest, prompt_tokens: int
) -> tuple[Known, list[int], list[int]]:
    """Put what engines say of their caches in the place of what their mirrors have: tokens, and blocks that agree.

    The second list is of tokens that are in a slower cache.
    """
    blocks, held, reloaded = known.blocks, estimated, [0] * len(known.candidates)
    for index, replica in enumerate(known.candidates):
        contents = replica.contents
        if contents is None:
            continue
        said = held_of(contents, request, known.scale, blocks[index])
        if said is None:
            continue
        if held is estimated:
            blocks, held = blocks.copy(), estimated.copy()
        held[index] = tokens = min(said.tokens, prompt_tokens)
        reloaded[index] = min(said.reloaded_tokens, tokens)
        if known.scale is not None and request.prompt is not None:
            most = len(request.prompt.hashes)
            blocks[index] = blocks_within(known.scale, blocks[index], most, tokens, replica.block_tokens)
    return (known if held is estimated else known._replace(blocks=blocks)), held, reloaded


def _reason(known: Known, request: RoutingRequest, policy: Policy, best: int) -> Reason:
    if known.retry:
        return Reason.FAILOVER
    if known.last_resort:
        return Reason.LAST_RESORT
    chosen = known.candidates[best].replica_id
    if known.stored_at is not None:
        return Reason.PINNED if chosen == known.stored_at else Reason.FAILOVER
    if known.scale and 0 < known.scale.anchor <= known.blocks[best] and known.hinted in (None, chosen):
        return Reason.WARM
    if known.hinted == chosen:
        return Reason.SESSION
    return _reason_to_move(known, policy) or _reason_of_new(known, request, best)


def _reason_to_move(known: Known, policy: Policy) -> Reason | None:
    """Return why a session is sent away from its home; None for one that has none."""
    if known.lost is not None:
        return Reason.DRAINED if known.drained else Reason.FAILOVER
    if known.hinted is not None or (known.scale and known.scale.anchor):
        return Reason.SPILLED if policy is affinity else Reason.POLICY
    return None


def _reason_of_new(known: Known, request: RoutingRequest, best: int) -> Reason:
    if request.prompt is None:
        return Reason.UNKNOWN_SHAPE if request.shape == "unknown" else Reason.KEYLESS
    return Reason.SHARED if known.blocks[best] else Reason.NEW


def matches(candidates: list[Replica], prompt: Prompt) -> list[int]:
    """Match a prompt on each candidate. Most hold the same of it: a shared prefix, or nothing.

    A turn that an engine is known to hold counts, even where its mirror has evicted it.
    """
    hashes = prompt.hashes
    found: list[int] = []
    guess = 0
    for replica in candidates:
        matched = replica.mirror.match(hashes, guess)
        guess = matched or guess
        if replica.contents is not None:
            matched = replica.contents.turns.deepest(prompt, matched)
        found.append(matched)
    return found
