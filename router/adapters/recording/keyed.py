"""What a recording's own secret does to everything that could tell of a prompt."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from hashlib import blake2b

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

KEY_BYTES = 32
"""Of AES-256."""

NAME_BYTES = 4
"""Of a pseudonym: a fleet has some dozens of replicas and models."""


class Keyed:
    """Makes hashes and names that are equal where the given ones are, and tell nothing without the key.

    Block hashes are xxh3, which is no cryptographic hash: who knows one prompt and its hash could work out a seed. So
    each is one block of AES-256, of which 64 bits are kept. Many are made with one call, in a tenth of a microsecond
    each; keyed BLAKE2b takes 1.7.
    """

    def __init__(self, key: bytes) -> None:
        """`key`: 32 random bytes, which nobody else has."""
        self._key = key
        # ECB is what is wanted here: each block by itself, equal ones equal.
        self._encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305

    def hashes(self, values: Sequence[int]) -> bytes:
        """Return 8 bytes for each 64-bit hash."""
        blocks = array("Q", bytes(16 * len(values)))
        blocks[::2] = array("Q", values)
        if sys.byteorder == "big":
            blocks.byteswap()
        found = array("Q")
        found.frombytes(self._encryptor.update(blocks.tobytes()))
        return found[::2].tobytes()

    def session(self, text: str) -> str:
        """Return 16 hexadecimal digits for a session."""
        return self._digest(text, 8, b"session")

    def name(self, text: str) -> str:
        """Return 8 hexadecimal digits for a replica or a model."""
        return self._digest(text, NAME_BYTES, b"name")

    def _digest(self, text: str, size_bytes: int, kind: bytes) -> str:
        data = text.encode("utf-8", "surrogatepass")
        return blake2b(data, digest_size=size_bytes, key=self._key, person=kind).hexdigest()
