"""A prompt as the engine sees it: token ids, and the chained hashes of the engine's own blocks of them."""

from __future__ import annotations

from array import array

import xxhash

_hash = xxhash.xxh3_64_intdigest


def token_scope(lora_name: str | None, cache_salt: str | None) -> int:
    """Return the 64-bit hash of what keeps equal tokens apart within one engine. None: the base model, no salt.

    The model itself is no part of it, since contents are compared within one replica. Equal in every process.
    """
    return _hash(f"{lora_name or ''}\x00{cache_salt or ''}".encode("utf-8", "surrogatepass"))


class TokenIds:
    """The tokens of one prompt. Equal scope and equal leading tokens mean equal leading hashes, in every process."""

    __slots__ = ("_by_size", "ids", "scope")

    def __init__(self, ids: array[int], scope: int) -> None:
        """`ids`: unsigned 32-bit, type code "I". `scope`: hash of what separates caches beside the tokens."""
        self.ids = ids
        self.scope = scope
        self._by_size: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self.ids)

    def hashes(self, block_tokens: int) -> list[int]:
        """Return a 64-bit hash for each full block of `block_tokens` ids, chained on the one before."""
        found = self._by_size.get(block_tokens)
        if found is None:
            found = self._by_size[block_tokens] = chained(self.scope, self.ids, block_tokens)
        return found


def chained(parent: int, ids: array[int], block_tokens: int) -> list[int]:
    """Hash each full block of ids on its parent's hash; the first one's parent is `parent`."""
    packed, step = ids.tobytes(), block_tokens * ids.itemsize
    hashes: list[int] = []
    for start in range(0, len(packed) - step + 1, step):
        parent = _hash(packed[start : start + step], parent)
        hashes.append(parent)
    return hashes
