"""Histories cut in their middle: what stays, what turns still share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.types import Prompt, RoutingRequest
from router.replay.demand import Job, Once
from router.replay.run import run
from router.replay.shortened import Cut, cut_hashes, cut_job, cut_of, shortened
from router.sim.types import SimRequest
from tests.replay.worlds import BLOCK_TOKENS, asked, plan, trace


def test_cuts_go_in_steps_of_half_the_limit() -> None:
    """Limit 80 tokens, 8 blocks: 2 at the beginning stay; 4 go at the 9th block, 4 more at the 13th."""
    cuts = [cut_of(blocks, blocks - 1, 80, 10) for blocks in (8, 9, 12, 13)]
    assert cuts == [None, Cut(2, 4), Cut(2, 4), Cut(2, 8)]


def test_what_is_new_is_not_cut() -> None:
    """Of 40 blocks 5, 6, 9 and 10 are history, of which 2 stay: room for no step of 4, one, one, two."""
    assert [cut_of(40, history, 80, 10) for history in (0, 5, 6, 9, 10)] == [
        None, None, Cut(2, 4), Cut(2, 4), Cut(2, 8)
    ]  # fmt: skip


@given(st.integers(1, 900), st.integers(0, 900), st.integers(1, 900), st.sampled_from([1, 10, 16]))
def test_what_is_left_is_within_the_limit_or_new(blocks: int, history: int, limit: int, block: int) -> None:
    cut = cut_of(blocks, min(history, blocks), limit, block)
    limit_blocks = max(4, limit // block // 4 * 4)
    head, dropped = (cut.head_blocks, cut.dropped_blocks) if cut else (limit_blocks // 4, 0)
    left_history = min(history, blocks) - head - dropped
    assert blocks - dropped <= limit_blocks or left_history < limit_blocks // 2
    assert dropped == 0 or (blocks - dropped > limit_blocks // 2 and left_history >= 0)


def test_hashes_before_the_cut_stay_and_those_behind_are_others() -> None:
    hashes = cut_hashes(range(10), 2, 6)
    assert (hashes[:2], len(hashes)) == ([0, 1], 6)
    assert not set(hashes[2:]) & set(range(10))
    assert cut_hashes(range(12), 2, 6)[:6] == hashes, "the next turn, cut alike, goes on from it"
    assert not set(cut_hashes(range(12), 2, 10)[2:]) & set(hashes)


def test_engine_and_router_see_the_same_cut() -> None:
    prompt = Prompt(list(range(100, 112)), [40 * (n + 1) for n in range(12)], [], None)
    request = RoutingRequest("m", "chat", prompt, 480, streaming=True)
    job = Job(0.0, request, SimRequest.from_block_hashes("a", range(13), 125, 7))
    cut = cut_job(job, Cut(2, 4), BLOCK_TOKENS)
    assert (cut.prompt_tokens, len(cut.simulated.output_token_ids)) == (85, 7)
    assert len(cut.simulated.block_hashes or ()) == 9
    seen = cut.request.prompt
    assert seen is not None
    assert (seen.hashes[:2], len(seen.hashes), seen.ends_bytes) == ([100, 101], 8, [40 * (n + 1) for n in range(8)])
    assert cut.request.body_bytes == 480 - 4 * 40


@pytest.mark.parametrize("limit", [None, 1_000])
def test_short_prompts_stay_as_they_are(limit: int | None) -> None:
    client = Once(0, 0.0, asked(0.0, range(9)))
    (kept,) = shortened([client], limit, BLOCK_TOKENS)
    assert (kept.starts_s, kept.number) == (0.0, 0)
    job = kept.next_job()
    assert job is not None
    assert job.prompt_tokens == 95
    assert kept.next_job() is None


def test_turns_between_two_cuts_hit_what_is_left() -> None:
    """Turns of 7, 9, 11 and 13 blocks, the last of them not full, at a limit of 8.

    The second is cut: its 2 first blocks hit. The third is cut alike: all that the second had hits, 5 blocks.
    The fourth is cut anew.
    """
    turns = [asked(10.0 * n, range(blocks), more=1) for n, blocks in enumerate((7, 9, 11, 13))]
    result = run(plan("rr", replicas=1, history_tokens=80), trace(*turns))
    assert [one.prompt_tokens for one in result.answered] == [71, 51, 71, 51]
    assert [one.cached_tokens for one in result.answered] == [0, 20, 50, 20]


def test_a_first_prompt_stays_whole_however_long() -> None:
    result = run(plan("rr", replicas=1, history_tokens=80), trace(asked(0.0, range(60)), asked(90.0, range(100, 130))))
    assert [one.prompt_tokens for one in result.answered] == [605, 305]
