"""What one cache of the whole fleet's size would have hit: the best that any routing could reach."""

from collections.abc import Sequence

from router.app.demo.chats import Answer
from router.sim.blocks import BlockPool, chain_hashes
from router.sim.tokenizer import Tokenizer


def pooled_hit_ratio(answers: Sequence[Answer], pool_tokens: int, block_tokens: int) -> float:
    """Cached over all prompt tokens if `answers` (in order) had all run on one replica with `pool_tokens` of cache."""
    tokenizer = Tokenizer()
    pool = BlockPool(pool_tokens // block_tokens)
    cached_blocks = sum(_hit_blocks(answer, pool, tokenizer, block_tokens) for answer in answers)
    prompt_tokens = sum(answer.prompt_tokens for answer in answers)
    return cached_blocks * block_tokens / prompt_tokens if prompt_tokens else 0.0


def _hit_blocks(answer: Answer, pool: BlockPool, tokenizer: Tokenizer, block_tokens: int) -> int:
    """Runs one request through the pool: hit, compute, release. The last prompt token is always computed."""
    hashes = chain_hashes(_computed_ids(answer, tokenizer), block_tokens)
    hit = pool.longest_hit(hashes, limit_blocks=(answer.prompt_tokens - 1) // block_tokens)
    pool.touch(hit)
    computed = pool.allocate(len(hashes) - len(hit))
    for block, block_hash in zip(computed, hashes[len(hit) :], strict=True):
        pool.cache(block, block_hash)
    pool.release([*hit, *computed])
    return len(hit)


def _computed_ids(answer: Answer, tokenizer: Tokenizer) -> Sequence[int]:
    """The prompt and the answer as the next turn will repeat them; KV of the last token is never computed."""
    messages = [*answer.turn.messages, {"role": "assistant", "content": answer.text}]
    ids = tokenizer.render_chat(messages, add_generation_prompt=False)
    return ids[: answer.prompt_tokens + answer.completion_tokens - 1]
