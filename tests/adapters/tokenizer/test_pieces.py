"""Piece by piece is the same as the whole, and only what is new is tokenised."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

from router.adapters.tokenizer.encoder import Encoder
from router.adapters.tokenizer.pieces import Cutter, PieceCache
from tests.adapters.tokenizer.tiny import CORPUS, SPECIAL, tiny_tokenizer

ODD = [
    AddedToken("<l>", lstrip=True, normalized=False),
    AddedToken("<r>", rstrip=True, normalized=False),
    AddedToken("word", single_word=True, normalized=False),
    AddedToken("<tool>s", normalized=False),
    AddedToken("named", normalized=True),
]
"""Tokens that take spaces in, count as a word only, begin like another, or are found after normalizing."""

TOKENIZERS = {"plain": tiny_tokenizer(), "odd tokens": tiny_tokenizer(*ODD)}
ENCODERS = {name: Encoder(tokenizer) for name, tokenizer in TOKENIZERS.items()}

FRAGMENTS = st.one_of(
    st.sampled_from([*SPECIAL, *(token.content for token in ODD), "<|im_", "start|>", " ", "\n", "  ", "s"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
)


def whole(tokenizer: Tokenizer, text: str, add_special_tokens: bool = False) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
    return ids


@pytest.mark.parametrize("name", ENCODERS)
@given(fragments=st.lists(FRAGMENTS, max_size=20))
def test_pieces_give_what_the_whole_gives(name: str, fragments: list[str]) -> None:
    text = "".join(fragments)
    assert list(ENCODERS[name].encode(text, False)) == whole(TOKENIZERS[name], text)


@pytest.mark.parametrize("name", ENCODERS)
@given(fragments=st.lists(FRAGMENTS, max_size=20))
def test_pieces_are_the_text_and_begin_at_plain_special_tokens(name: str, fragments: list[str]) -> None:
    text = "".join(fragments)
    pieces = Cutter(TOKENIZERS[name].get_added_tokens_decoder().values()).pieces(text)
    assert "".join(pieces) == text
    assert all(piece.startswith(SPECIAL) for piece in pieces[1:])


def test_both_can_be_taken_piece_by_piece() -> None:
    assert all(encoder.cache is not None for encoder in ENCODERS.values())


def test_of_a_longer_conversation_only_the_new_text_is_tokenised() -> None:
    encoder = Encoder(tiny_tokenizer())
    first = "<|im_start|>user\nblocks and tokens<|im_end|>\n<|im_start|>assistant\n"
    more = "of the city<|im_end|>\n<|im_start|>user\nthe rain<|im_end|>\n<|im_start|>assistant\n"
    cache = encoder.cache
    assert cache is not None
    encoder.encode(first, False)
    before = cache.added_tokens
    both = encoder.encode(first + more, False)
    new = len(encoder.encode("<|im_start|>assistant\nof the city<|im_start|>user\nthe rain", False))
    assert cache.added_tokens - before == new, "the answer's message and the new one"
    assert list(both) == whole(tiny_tokenizer(), first + more)


def test_where_pieces_differ_there_is_no_cache() -> None:
    """A tokenizer that reads special tokens as text, and takes the space before one as part of it."""
    odd = tiny_tokenizer()
    odd.encode_special_tokens = True
    encoder = Encoder(odd)
    assert encoder.cache is None
    assert list(encoder.encode("a <|im_end|> b", False)) == whole(odd, "a <|im_end|> b")


def test_a_space_that_only_the_beginning_of_a_prompt_gets_is_no_hindrance() -> None:
    first = Tokenizer(models.BPE(byte_fallback=False, unk_token="?"))
    first.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    trainer = trainers.BpeTrainer(vocab_size=100, special_tokens=["?", "<s>"], show_progress=False)
    first.train_from_iterator(CORPUS, trainer)
    encoder = Encoder(first)
    assert encoder.cache is not None
    for text in ("rain<s>rain<s> rain", "<s>rain"):
        assert list(encoder.encode(text, False)) == whole(first, text)


def test_what_stands_around_a_text_to_be_completed() -> None:
    tokenizer = tiny_tokenizer(bos=True)
    encoder = Encoder(tokenizer)
    text = "the rain<|im_end|> and the city"
    assert list(encoder.encode(text, True)) == whole(tokenizer, text, True)
    assert list(encoder.encode(text, True))[1:] == list(encoder.encode(text, False))
    assert list(Encoder(tokenizer, ([7], [8, 9])).encode("a", True)) == [7, *whole(tokenizer, "a"), 8, 9]


def entry(tokens: int) -> array[int]:
    return array("I", range(tokens))


def test_the_cache_stays_below_its_limit_and_keeps_what_is_used() -> None:
    cache = PieceCache(limit_bytes=20_000)
    used = "the first"
    keys, _ = cache.find([used])
    cache.add([(keys[0], entry(10))])
    for number in range(200):
        keys, _ = cache.find([f"piece {number}"])
        cache.add([(keys[0], entry(100))])
        assert cache.size_bytes <= 20_000
        assert cache.find([used])[1] == [entry(10)]
    assert cache.find(["piece 0"])[1] == [None]


def test_a_piece_too_large_for_the_cache_is_not_kept() -> None:
    cache = PieceCache(limit_bytes=2_000)
    keys, _ = cache.find(["a"])
    cache.add([(keys[0], entry(1_000))])
    assert cache.find(["a"])[1] == [None]
    assert cache.size_bytes == 0
