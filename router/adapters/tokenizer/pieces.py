"""Texts cut at special tokens: what stands between two of them is tokenised by itself, so each piece only once."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from threading import Lock

from tokenizers import AddedToken
from xxhash import xxh3_128_digest

CACHE_BYTES = 128 << 20
"""About 30 million tokens: what a fleet's caches hold, or more."""

_ENTRY_BYTES = 250
"""Of an entry beside its ids: key, array and their places, on 64-bit CPython."""


class Cutter:
    """Cuts texts before each special token that stands for itself whatever surrounds it."""

    def __init__(self, tokens: Iterable[AddedToken]) -> None:
        """`tokens`: all that were added to the vocabulary, as they are matched in the text as it is."""
        matched = sorted((token for token in tokens if not token.normalized), key=lambda token: -len(token.content))
        self._plain = frozenset(token.content for token in matched if not _takes_more(token))
        # The longest of those that begin at a place is the one that is meant, as in the library.
        self._find = re.compile("|".join(re.escape(token.content) for token in matched)) if matched else None

    def pieces(self, text: str) -> list[str]:
        """Return the text in pieces; each but the first begins with a special token."""
        starts = list(self._starts(text))
        ends = [*starts[1:], len(text)]
        return [text[start:end] for start, end in zip(starts, ends, strict=True) if start < end]

    def _starts(self, text: str) -> Iterator[int]:
        yield 0
        if self._find is not None:
            for found in self._find.finditer(text):
                if found.group() in self._plain:
                    yield found.start()


def _takes_more(token: AddedToken) -> bool:
    """Tell whether what it is depends on its neighbours: it takes spaces in, or counts as a whole word only."""
    return bool(token.lstrip or token.rstrip or token.single_word)


class PieceCache:
    """The ids of pieces by the hash of their text. Bounded: the half that was not used for longest goes at once."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._half_bytes = limit_bytes // 2
        self._new: dict[bytes, array[int]] = {}
        self._old: dict[bytes, array[int]] = {}
        self._new_bytes = self._old_bytes = 0
        self._lock = Lock()
        self.found_tokens = 0
        self.added_tokens = 0

    @property
    def size_bytes(self) -> int:
        """About what the ids and their places take."""
        return self._new_bytes + self._old_bytes

    def find(self, pieces: Sequence[str]) -> tuple[list[bytes], list[array[int] | None]]:
        """Return each piece's key and its ids; None for one that is not known."""
        keys = [xxh3_128_digest(piece.encode("utf-8")) for piece in pieces]
        with self._lock:
            found = [self._find(key) for key in keys]
            self.found_tokens += sum(len(ids) for ids in found if ids is not None)
        return keys, found

    def _find(self, key: bytes) -> array[int] | None:
        ids = self._new.get(key)
        if ids is None and (ids := self._old.get(key)) is not None:
            self._put(key, ids)
        return ids

    def add(self, new: Iterable[tuple[bytes, array[int]]]) -> None:
        """Remember the ids of pieces."""
        with self._lock:
            for key, ids in new:
                self.added_tokens += len(ids)
                self._put(key, ids)

    def _put(self, key: bytes, ids: array[int]) -> None:
        size = _ENTRY_BYTES + len(ids) * ids.itemsize
        if size > self._half_bytes:
            return
        if self._new_bytes + size > self._half_bytes:
            self._old, self._old_bytes = self._new, self._new_bytes
            self._new, self._new_bytes = {}, 0
        if key not in self._new:
            self._new[key] = ids
            self._new_bytes += size
