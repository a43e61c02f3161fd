"""A prompt whose tokens are known: its length is exact, and what is before and behind the anchor adds up to it."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.fleet import Fleet
from router.core.prompt import PromptBuilder
from router.core.token_ids import TokenIds, token_scope
from router.core.tokens import TokenScale, TurnEnds
from router.core.types import EngineReport, Prompt, RoutingRequest

SIZE = Fleet().size_of("m")


def prompt_of(*messages: bytes) -> Prompt:
    builder = PromptBuilder(7)
    for number, message in enumerate(messages):
        builder.add((b"user", b"assistant")[number % 2], message)
    prompt = builder.build()
    assert prompt is not None
    return prompt


def known(count: int) -> TokenIds:
    return TokenIds(array("I", range(count)), token_scope(None, None))


def test_the_length_of_a_new_prompt_is_the_number_of_its_tokens() -> None:
    scale = TokenScale(prompt_of(b"a" * 1024), SIZE, TurnEnds(10), 0, known(700))
    assert scale.total == 700
    assert scale.tokens(2) == pytest.approx(700)
    assert scale.tokens(1) == pytest.approx(350)


def test_behind_an_anchor_there_is_what_the_tokens_leave() -> None:
    turns = TurnEnds(10)
    turns.put(prompt_of(b"a" * 1024), 300, 20)
    scale = TokenScale(prompt_of(b"a" * 1024, b"b" * 512, b"c" * 512), SIZE, turns, 2, known(400))
    assert (scale.anchor, scale.anchor_tokens, scale.total) == (2, 300, 400)
    assert scale.tokens(2) == 300
    assert scale.tokens(3) == pytest.approx(350)
    assert scale.tokens(4) == pytest.approx(400)


@given(sizes=st.lists(st.integers(1, 3_000), min_size=1, max_size=5), count=st.integers(1, 5_000))
def test_more_blocks_are_never_fewer_tokens_and_never_the_whole(sizes: list[int], count: int) -> None:
    prompt = prompt_of(*(b"a" * size for size in sizes), b"b" * 512)
    scale = TokenScale(prompt, SIZE, TurnEnds(10), 0, known(count))
    cached = [scale.cached_tokens(blocks, 16, answer_resident=False) for blocks in range(len(prompt.hashes) + 1)]
    assert cached == sorted(cached)
    assert cached[-1] <= max(0, count - 1)


def test_a_fleet_counts_the_tokens_and_not_the_bytes() -> None:
    fleet = Fleet()
    fleet.add("r")
    fleet.observe_engine("r", EngineReport(kv_tokens=10_000, block_tokens=16))
    request = RoutingRequest("m", "chat", prompt_of(b"a" * 1024), 1100)
    guessed = fleet.route(request, 0.0)
    exact = fleet.route(request._replace(tokens=known(777)), 0.0)
    assert guessed.decision.prompt_tokens != 777
    assert exact.decision.prompt_tokens == 777


def test_scopes_differ_by_adapter_and_salt() -> None:
    assert known(32).hashes(16) == known(40).hashes(16)
    other = TokenIds(array("I", range(32)), token_scope("adapter", None))
    assert other.hashes(16) != known(32).hashes(16)
