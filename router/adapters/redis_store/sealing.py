"""What a secret does to what leaves for Redis: hashes are keyed, bulletins are sealed."""

from __future__ import annotations

import secrets
from hashlib import blake2b

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

HASH_BYTES = 8
"""As the hashes themselves: among five million keys the chance that any two collide is one in a million."""

CHECK_BYTES = 6
"""For hashes inside values: what a Lua number holds exactly."""

NONCE_BYTES = 12
"""Of AES-GCM. By chance, it is good for four billion values under one key."""


class Keyring:
    """The keys that a secret gives; without one, hashes go as they are and bulletins in clear.

    Block hashes are xxh3, which is no cryptographic hash: whoever knows a short prompt and its hash could work out a
    seed. So with a secret they are hashed once more with BLAKE2b (RFC 7693, keyed). What routers tell each other holds
    many hashes that must be read again; it is encrypted with AES-256-GCM, under a key of each router's start, so that
    a plain count is a nonce that never comes twice.
    """

    def __init__(self, secret: str | None) -> None:
        self._key = None if secret is None else blake2b(secret.encode(), digest_size=32, person=b"warmroute").digest()
        self._ciphers: dict[str, AESGCM] = {}

    @property
    def keyed(self) -> bool:
        """Whether there is a secret."""
        return self._key is not None

    def keyed_hash(self, value: int) -> bytes:
        """Return the 8 bytes under which a 64-bit hash is known in Redis."""
        plain = value.to_bytes(8, "big")
        return plain if self._key is None else blake2b(plain, digest_size=HASH_BYTES, key=self._key).digest()

    def check(self, value: int) -> int:
        """Return 48 bits by which a hash is recognised and from which it can't be told."""
        return int.from_bytes(self.keyed_hash(value)[:CHECK_BYTES], "big")

    def salt(self, default: bytes) -> bytes:
        """Return the salt of the replica ids, which all routers must share."""
        return blake2b(default, digest_size=16, key=self._key or b"").digest()

    def seal(self, router: str, number: int, data: bytes) -> bytes:
        """Encrypt a router's bulletin; `number` must never repeat for the same router id."""
        if self._key is None:
            return data
        return self._cipher(router, self._key).encrypt(number.to_bytes(12, "big"), data, router.encode())

    def unseal(self, router: str, number: int, sealed: bytes) -> bytes | None:
        """Return the bulletin; None where it was sealed with another secret, or changed."""
        if self._key is None:
            return sealed
        try:
            return self._cipher(router, self._key).decrypt(number.to_bytes(12, "big"), sealed, router.encode())
        except InvalidTag:
            return None

    def seal_value(self, data: bytes) -> bytes:
        """Encrypt what any router may read and replace."""
        if self._key is None:
            return data
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + AESGCM(self._value_key(self._key)).encrypt(nonce, data, None)

    def unseal_value(self, sealed: bytes) -> bytes | None:
        """Return what was sealed; None where it was sealed with another secret, or changed, or nothing is there."""
        if self._key is None:
            return sealed or None
        nonce, data = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
        try:
            return AESGCM(self._value_key(self._key)).decrypt(nonce, data, None)
        except (InvalidTag, ValueError):  # ValueError: too short for a nonce
            return None

    @staticmethod
    def _value_key(key: bytes) -> bytes:
        return blake2b(b"value", digest_size=32, key=key, person=b"values").digest()

    def forget(self, router: str) -> None:
        """Drop the key of a router that has gone."""
        self._ciphers.pop(router, None)

    def _cipher(self, router: str, key: bytes) -> AESGCM:
        cipher = self._ciphers.get(router)
        if cipher is None:
            own = blake2b(router.encode(), digest_size=32, key=key, person=b"bulletins").digest()
            cipher = self._ciphers[router] = AESGCM(own)
        return cipher
