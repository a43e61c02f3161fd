"""Ends of prompt blocks in tokens, and the numbers of pieces: exact values of small prompts."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from router.adapters.recording.blocks import PIECE_TOKENS, Ends, Pieces
from router.core.types import Prompt


def prompt(hashes: list[int], ends_bytes: list[int], text: bytes | None = None) -> Prompt:
    return Prompt(hashes, ends_bytes, [], None, text)


FIRST = prompt([1, 2, 3], [512, 1024, 1204])
NEXT = prompt([1, 2, 3, 4, 5], [512, 1024, 1204, 1716, 2004])


def test_a_first_prompt_shares_its_tokens_by_bytes() -> None:
    assert Ends().of(FIRST, 301) == [128, 256, 301]


def test_the_next_turn_finds_the_turn_before_where_it_ended_and_shares_the_rest() -> None:
    ends = Ends()
    ends.of(FIRST, 301)
    assert ends.of(NEXT, 461) == [128, 256, 301, 403, 461]  # 160 tokens over 800 bytes


def test_a_branch_keeps_what_is_common() -> None:
    ends = Ends()
    ends.of(FIRST, 301)
    assert ends.of(prompt([1, 7], [512, 1024]), 200) == [128, 200]


def test_known_ends_that_are_too_many_tokens_stop_at_the_prompts_own() -> None:
    ends = Ends()
    ends.of(FIRST, 301)
    assert ends.of(FIRST, 280) == [128, 256, 280]


def test_what_follows_a_texts_last_whole_block_lies_behind_its_last_end() -> None:
    assert Ends().of(prompt([1, 2], [512, 1024], bytes(1280)), 320) == [128, 256]


@example(sizes=[1] * 6, tokens=[0, 0, 0, 1, 0], cuts=[1, 6, 5, 2, 3, 1])
@given(
    sizes=st.lists(st.integers(1, 4096), min_size=1, max_size=30),
    tokens=st.lists(st.integers(0, 5_000), min_size=1, max_size=6),
    cuts=st.lists(st.integers(1, 30), min_size=6, max_size=6),
)
def test_ends_never_fall_and_never_pass_the_prompts_end(sizes: list[int], tokens: list[int], cuts: list[int]) -> None:
    ends_bytes, ends = list(accumulate(sizes)), Ends(most=8)
    for count, cut in zip(tokens, cuts, strict=False):
        found = ends.of(prompt(list(range(len(sizes)))[:cut], ends_bytes[:cut]), count)
        assert found == sorted(found)
        assert len(found) == min(cut, len(sizes))
        assert all(0 <= end <= count for end in found)


# Pieces


def test_a_prompt_has_a_number_for_each_512_tokens_begun() -> None:
    pieces = Pieces()
    assert pieces.of(prompt([1], [4]), [512], 512) == [0]
    assert pieces.of(prompt([2], [4]), [513], 513) == [1, 2]
    assert pieces.of(prompt([3], [4]), [], 0) == []


def test_the_next_turn_has_the_numbers_of_what_is_whole_in_both() -> None:
    pieces = Pieces()
    assert pieces.of(prompt([1, 2, 3], [4, 8, 12]), [400, 800, 1100], 1100) == [0, 1, 2]
    assert pieces.of(prompt([1, 2, 3, 4], [4, 8, 12, 16]), [400, 800, 1100, 1600], 1600) == [0, 1, 3, 4]


def test_prompts_that_part_have_their_own_numbers_from_there() -> None:
    pieces = Pieces()
    pieces.of(prompt([1, 2, 3], [4, 8, 12]), [512, 1024, 1100], 1100)
    assert pieces.of(prompt([1, 7, 8], [4, 8, 12]), [512, 1024, 1100], 1100) == [0, 3, 4]


def test_the_same_text_behind_the_last_whole_block_has_the_same_number() -> None:
    pieces = Pieces()
    same = [pieces.of(prompt([1], [4], b"....abc"), [512], 600) for _ in range(2)]
    assert same == [[0, 1]] * 2
    assert pieces.of(prompt([1], [4], b"....abd"), [512], 600) == [0, 2]


def test_a_prompt_without_a_key_shares_no_number() -> None:
    pieces = Pieces()
    assert [pieces.of(None, [], 600) for _ in range(2)] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("tokens", [1, PIECE_TOKENS, 3 * PIECE_TOKENS + 1])
def test_one_block_of_several_pieces_has_several_numbers(tokens: int) -> None:
    numbers = Pieces().of(prompt([1], [4096]), [tokens], tokens)
    assert len(set(numbers)) == len(numbers) == -(-tokens // PIECE_TOKENS)
