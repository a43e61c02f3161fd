"""Clients that drop turns from the middle of long histories, as a chat application may."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from router.core.types import Prompt
from router.replay.demand import Client, Job
from router.replay.prefixes import PrefixCache
from router.sim.types import SimRequest

KEPT_RATIO = 0.5
"""Of the limit, left by a cut: were it more, the next turns would be cut again, and each cut makes a new tail."""

HEAD_RATIO = 0.25
"""Of the limit, kept from the prompt's beginning whatever is cut: system prompt, tools, the task."""

_MIX = 0x9E3779B97F4A7C15
_MASK_64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Cut:
    """What goes from a prompt, in blocks of the engine."""

    head_blocks: int
    """Stay at the beginning."""
    dropped_blocks: int
    """Go behind those."""


def cut_of(prompt_blocks: int, history_blocks: int, limit_tokens: int, block_tokens: int) -> Cut | None:
    """Return the cut that keeps a prompt at `limit_tokens` or less, as far as it is history; None for none.

    Cuts go in steps of half the limit, so that the turns between two cuts share all that is left. What is new in a
    prompt stays. The limit is taken down to a multiple of four blocks, four at least.
    """
    limit = max(4, limit_tokens // block_tokens // 4 * 4)
    step, head = limit - int(limit * KEPT_RATIO), int(limit * HEAD_RATIO)
    wanted, possible = -((limit - prompt_blocks) // step), (history_blocks - head) // step
    steps = min(wanted, possible)
    return Cut(head, steps * step) if steps > 0 else None


def shortened(clients: Sequence[Client], limit_tokens: int | None, block_tokens: int) -> Sequence[Client]:
    """Return clients that keep their prompts at `limit_tokens` or less; None: as they are."""
    if limit_tokens is None:
        return clients
    sent = PrefixCache()
    return [Shortening(client, sent, limit_tokens, block_tokens) for client in clients]


class Shortening:
    """A client whose long histories are cut. History is what an earlier prompt, or its answer, began with."""

    def __init__(self, client: Client, sent: PrefixCache, limit_tokens: int, block_tokens: int) -> None:
        """`sent`: what all clients sent, whole."""
        self._client, self._sent = client, sent
        self._limit_tokens, self._block_tokens = limit_tokens, block_tokens
        self.starts_s, self.number = client.starts_s, client.number

    def next_job(self) -> Job | None:
        """Return the other's next request, cut."""
        job = self._client.next_job()
        if job is None:
            return None
        hashes, prompt_blocks = job.simulated.block_hashes or (), -(-job.prompt_tokens // self._block_tokens)
        history_blocks = self._sent.match(hashes[:prompt_blocks])
        self._sent.use(hashes)
        cut = cut_of(prompt_blocks, history_blocks, self._limit_tokens, self._block_tokens)
        return cut_job(job, cut, self._block_tokens) if cut else job


def cut_job(job: Job, cut: Cut, block_tokens: int) -> Job:
    """Return a request without the cut-out blocks, for router and engine alike."""
    dropped_tokens = cut.dropped_blocks * block_tokens
    simulated, prompt = job.simulated, job.request.prompt
    hashes = cut_hashes(simulated.block_hashes or (), cut.head_blocks, cut.head_blocks + cut.dropped_blocks)
    shorter = SimRequest(
        simulated.request_id,
        range(job.prompt_tokens - dropped_tokens),
        simulated.output_token_ids,
        finish_reason=simulated.finish_reason,
        block_hashes=hashes,
    )
    token_bytes = job.bytes_per_token
    head_bytes, dropped_bytes = cut.head_blocks * block_tokens * token_bytes, dropped_tokens * token_bytes
    cut_prompt = prompt and _cut_prompt(prompt, int(head_bytes), int(dropped_bytes))
    body_bytes = max(0, job.request.body_bytes - int(dropped_bytes))
    return replace(job, request=job.request._replace(prompt=cut_prompt, body_bytes=body_bytes), simulated=shorter)


def cut_hashes(hashes: Sequence[int], first: int, after: int) -> list[int]:
    """Return chained hashes without those from `first` up to `after`, and others behind: those have another history.

    Two prompts whose cuts are alike still share what follows.
    """
    salt = (after * _MIX) & _MASK_64
    return [*hashes[:first], *(known ^ salt for known in hashes[after:])]


def _cut_prompt(prompt: Prompt, head_bytes: int, dropped_bytes: int) -> Prompt | None:
    """The router's blocks: whole ones before the cut, whole ones behind it."""
    ends = prompt.ends_bytes
    first = bisect_right(ends, head_bytes)
    # A block begins where the one before ends.
    after = bisect_left(ends, head_bytes + dropped_bytes) + 1
    hashes = cut_hashes(prompt.hashes, first, after)
    if not hashes:
        return None
    return Prompt(hashes, ends[:first] + [end - dropped_bytes for end in ends[after:]], [], prompt.bytes_per_token)
