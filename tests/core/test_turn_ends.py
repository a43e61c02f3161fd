"""Where a text's history is known to have ended: anywhere, and only where the same bytes go on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.prompt import PromptBuilder
from router.core.token_size import TokenSize
from router.core.tokens import TokenScale, TurnEnds
from router.core.types import Prompt


def open_prompt(text: bytes | memoryview) -> Prompt:
    builder = PromptBuilder(7, bytes_per_token=4.0)
    builder.add_open(b"text", text)
    prompt = builder.build()
    assert prompt is not None
    return prompt


def scale(prompt: Prompt, turns: TurnEnds) -> TokenScale:
    return TokenScale(prompt, TokenSize(), turns, len(prompt.hashes))


@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_a_text_that_goes_on_behind_an_answered_one_is_anchored_at_its_very_end(kind: type) -> None:
    turns, text = TurnEnds(100), b"a" * 1_300
    turns.put(open_prompt(kind(text)), 333, 40)
    known = scale(open_prompt(kind(text + b"answer" * 100)), turns)
    assert (known.anchor, known.anchor_bytes, known.anchor_tokens, known.answer_tokens) == (2, 1_300, 333, 40)
    assert known.total == 333 + 150
    assert known.cached_tokens(2, 16, answer_resident=True) == (333 + 40) // 16 * 16
    assert known.cached_tokens(2, 16, answer_resident=False) < 333


def test_the_same_text_again_is_cached_but_for_its_last_token() -> None:
    turns, text = TurnEnds(100), b"a" * 1_300
    turns.put(open_prompt(text), 333, 40)
    assert scale(open_prompt(text), turns).cached_tokens(2, 16, answer_resident=True) == 332 // 16 * 16


def test_a_text_that_ends_otherwise_behind_the_same_blocks_goes_on_nowhere() -> None:
    """Questions behind one long example are no turns of one conversation."""
    turns = TurnEnds(100)
    turns.put(open_prompt(b"a" * 1_024 + b"question 1"), 260, 40)
    for other in (b"question 2", b"question", b"another one, and longer"):
        assert scale(open_prompt(b"a" * 1_024 + other), turns).anchor == 0
    assert scale(open_prompt(b"a" * 1_024 + b"question 1, answered"), turns).anchor == 2


@given(st.integers(512, 3_000), st.integers(0, 3_000), st.integers(1, 900))
def test_every_text_is_found_again_in_its_continuation(length: int, more: int, tokens: int) -> None:
    turns, text = TurnEnds(100), bytes(range(251)) * 12
    prompt = open_prompt(text[:length])
    turns.put(prompt, tokens, 5)
    known = scale(open_prompt(text[:length] + b"m" * more), turns)
    assert (known.anchor, known.anchor_bytes, known.anchor_tokens) == (len(prompt.hashes), length, tokens)
