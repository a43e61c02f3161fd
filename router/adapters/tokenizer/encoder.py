"""From a text to the ids of its tokens, piece by piece where that is proven to give the same."""

from __future__ import annotations

import logging
import os
from array import array
from collections.abc import Sequence

from tokenizers import AddedToken, Tokenizer

from router.adapters.tokenizer.pieces import Cutter, PieceCache

LOGGER = logging.getLogger("warmroute.tokenizer")

_SAMPLES = (
    "",
    "a",
    " Two  words,\n and\tmore 1234567 ",
    "\n\nÜber naïve 東京 🙂 e\u0301 ﬁ \u200b",
    "def f(x):\n    return [x ** 2 for x in range(10)]  # done\r\n",
    "I'm <b>sure</b> \\ \"quoted\" ▁ Ġ  ",
)
"""What tokenizers treat in ways of their own: spaces, numbers, accents, code, their own marks."""


class Encoder:
    """One model's tokenizer. May be used in several threads at once."""

    def __init__(self, tokenizer: Tokenizer, frame: tuple[Sequence[int], Sequence[int]] | None = None) -> None:
        """`frame`: ids that the model's configuration puts around a text that is no chat; None: the tokenizer's own."""
        # Its own threads would take the event loop's core, and warn at every fork.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        added = list(tokenizer.get_added_tokens_decoder().values())
        self._cutter = Cutter(added)
        self.cache: PieceCache | None = PieceCache()
        self._frame = _own_frame(tokenizer) if frame is None else (array("I", frame[0]), array("I", frame[1]))
        if not all(self.encode(text, False) == self._whole(text, False) for text in _texts(added)):
            self.cache = None
            LOGGER.warning("this tokenizer can't be used piece by piece: every prompt is tokenised as a whole")

    def encode(self, text: str, add_special_tokens: bool) -> array[int]:
        """Return the ids of a text, of type code "I". Raises ValueError and its like for what is no text."""
        if not add_special_tokens:
            return self._pieces(text)
        if self._frame is None:
            return self._whole(text, True)
        before, after = self._frame
        return before + self._pieces(text) + after

    def _pieces(self, text: str) -> array[int]:
        if self.cache is None:
            return self._whole(text, False)
        pieces = self._cutter.pieces(text)
        keys, known = self.cache.find(pieces)
        missing = [index for index, ids in enumerate(known) if ids is None]
        fresh = self._batch([pieces[index] for index in missing], False)
        self.cache.add((keys[index], ids) for index, ids in zip(missing, fresh, strict=True))
        for index, ids in zip(missing, fresh, strict=True):
            known[index] = ids
        return _joined(known)

    def _whole(self, text: str, add_special_tokens: bool) -> array[int]:
        return self._batch([text], add_special_tokens)[0]

    def _batch(self, texts: list[str], add_special_tokens: bool) -> list[array[int]]:
        """Encode several texts. `encode` of one text would hold the interpreter's lock all the while."""
        found = self._tokenizer.encode_batch_fast(texts, add_special_tokens=add_special_tokens) if texts else []
        return [array("I", one.ids) for one in found]


def _joined(parts: list[array[int] | None]) -> array[int]:
    ids = array("I")
    for part in parts:
        if part is not None:
            ids += part
    return ids


def _own_frame(tokenizer: Tokenizer) -> tuple[array[int], array[int]] | None:
    """Return what the tokenizer puts before and behind every text; None where it does more than that."""
    inner = tokenizer.encode("a", add_special_tokens=False).ids
    outer = tokenizer.encode("a", add_special_tokens=True).ids
    for start in range(len(outer) - len(inner) + 1):
        before, after = outer[:start], outer[start + len(inner) :]
        if all(_is_framed(tokenizer, sample, before, after) for sample in _SAMPLES):
            return array("I", before), array("I", after)
    return None


def _is_framed(tokenizer: Tokenizer, text: str, before: list[int], after: list[int]) -> bool:
    inner = tokenizer.encode(text, add_special_tokens=False).ids
    return bool(tokenizer.encode(text, add_special_tokens=True).ids == before + inner + after)


def _texts(added: list[AddedToken]) -> list[str]:
    """Return texts on which pieces and the whole must agree: every added token in every surrounding."""
    contents = [token.content for token in added] or [""]
    texts = ["".join(content + sample for content in contents) for sample in _SAMPLES]
    return texts + ["".join(sample + content for sample, content in zip(_SAMPLES * 9, contents * 2, strict=False))]
