"""From what an engine says it holds to what a request is credited with there."""

from __future__ import annotations

from router.core.engine_cache.cache import EngineCache
from router.core.engine_cache.turns import anchor_key
from router.core.engine_cache.types import Held
from router.core.tokens import ESTIMATED_RATIO, TokenScale
from router.core.types import Prompt, RoutingRequest

LOST_RATIO = 0.1
"""Share of an answer that is expected not to come back and yet does: what is learnt of it is learnt from whole blocks,
and always errs to this side. An answer that is really changed, such as by leaving its reasoning out, loses more."""


def held_of(contents: EngineCache, request: RoutingRequest, scale: TokenScale | None, blocks: int) -> Held | None:
    """Return what the engine holds of a request's prompt; None where its events do not say.

    With the prompt's tokens: exactly. Without: exactly for what goes on from a turn that ran there, as far as its
    answer comes back as the tokens that were generated. `blocks`: what the mirror has of the prompt.
    """
    if request.tokens is not None:
        return contents.held(request.tokens)
    prompt = request.prompt
    if scale is None or prompt is None:
        return None
    if not 0 < scale.anchor <= blocks:
        return _left_of_earlier(contents, prompt, scale)
    turn_tokens = scale.anchor_tokens + scale.answer_tokens
    left = contents.left_of_turn(anchor_key(prompt, scale.anchor, scale.anchor_bytes), turn_tokens)
    if left is None:
        return None
    tokens = scale.cached_tokens(blocks, contents.block_tokens, answer_resident=True)
    whole = (turn_tokens - 1) // contents.block_tokens * contents.block_tokens
    if blocks == scale.anchor and whole - tokens <= contents.block_tokens + LOST_RATIO * scale.answer_tokens:
        tokens = whole
    if blocks > scale.anchor and left.tokens == whole:  # others have had more of this prompt computed
        return left._replace(gpu_tokens=max(0, tokens - left.reloaded_tokens))
    return _first(left, min(tokens, left.tokens))


def _left_of_earlier(contents: EngineCache, prompt: Prompt, scale: TokenScale) -> Held | None:
    """Return what is left of the last turn that ran on this engine before the conversation went on elsewhere."""
    ran = contents.turns.last_turn(prompt)
    left = contents.left_of_turn(prompt.hashes[ran - 1], None) if ran else None
    if left is None:
        return None
    return _first(left, min(left.tokens, (scale.total - 1) // contents.block_tokens * contents.block_tokens))


def _first(held: Held, tokens: int) -> Held:
    """Return where the first `tokens` of what is held are."""
    gpu = min(held.gpu_tokens, tokens)
    cpu = min(held.cpu_tokens, tokens - gpu)
    return Held(gpu, cpu, tokens - gpu - cpu)


def blocks_within(scale: TokenScale, blocks: int, most_blocks: int, tokens: int, block_tokens: int) -> int:
    """Return how many of a prompt's own blocks agree with `tokens` that an engine is known to hold.

    That is `blocks`, what the mirror has, unless the two contradict each other by more than the estimate is uncertain.
    """
    if _agree(scale, blocks, tokens, block_tokens):
        return blocks
    low, high = 0, most_blocks
    while low < high:
        middle = (low + high + 1) >> 1
        if scale.tokens(middle) < tokens + block_tokens:
            low = middle
        else:
            high = middle - 1
    return low


def _agree(scale: TokenScale, blocks: int, tokens: int, block_tokens: int) -> bool:
    slack = block_tokens + ESTIMATED_RATIO * scale.estimated_tokens(blocks)
    if scale.tokens(blocks) > tokens + slack:
        return False
    return scale.tokens(blocks) + scale.answer_tokens + slack + block_tokens >= tokens
