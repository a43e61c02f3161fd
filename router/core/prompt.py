"""Prompt identity: fixed-size blocks of the canonical prompt, each hash chained on its parent's."""

from __future__ import annotations

import xxhash

from router.core.types import Part, Prompt

BLOCK_BYTES = 512
"""Bytes of one prompt block: about 128 tokens of English. Halving it doubles the index and the cost of a decision;
a message's end closes a block early, so a chat's match is exact to the message whatever the size."""

LONG_PROMPT_BLOCKS = 1024
"""From this block on (half a megabyte, about 128,000 tokens) blocks are `LONG_BLOCK_BYTES` long, so that an 8 MiB body
costs 3,000 hashes and not 16,000. The rule depends on the position alone: a longer prompt keeps its prefix's hashes."""

LONG_BLOCK_BYTES = 4096

MEDIA_BYTES = 2048
"""Canonical bytes that one image, sound or file counts for: placeholders of about 500 tokens, whatever its own size."""

MEDIA = b"media"
"""Tag of a media part."""

OPERATOR = frozenset({b"template", b"template-arguments", b"documents", b"tools", b"system", b"developer"})
"""Messages of whoever runs the application: the same in many sessions."""

Bytes = bytes | memoryview
"""Long messages come as views, so that they are hashed where they lie."""

_hash = xxhash.xxh3_64_intdigest


def scope_hash(*parts: str) -> int:
    """Return the 64-bit hash of what separates caches: model, adapter, cache salt. Equal in every process."""
    return _hash("\x00".join(parts).encode("utf-8", "surrogatepass"))


def session_hash(scope: int, session: str) -> int:
    """Return the 64-bit hash of a whole session id within a scope."""
    return _hash(session.encode("utf-8", "surrogatepass"), scope)


def open_hash(block: int, text: Bytes) -> int:
    """Return the hash of a text that follows a block and does not fill the next one."""
    return _hash(text, block)


class PromptBuilder:
    """Collects the canonical prompt in the order a chat template renders it and hashes it block by block."""

    __slots__ = (
        "_answers_at", "_bytes_per_token", "_ends", "_from_tool", "_hash", "_hashes", "_open_text", "_opening",
        "_parts", "_size", "message",
    )  # fmt: skip

    def __init__(self, scope: int, bytes_per_token: float | None = None) -> None:
        """Start a prompt in `scope` (see `scope_hash`); `bytes_per_token` only where it is exact (token ids)."""
        self._hash = scope
        self._hashes: list[int] = []
        self._ends: list[int] = []
        self._size = 0
        self._answers_at: list[int] = []
        self._open_text: Bytes | None = None
        self._opening = -1
        self._from_tool = False
        self._bytes_per_token = bytes_per_token
        self._parts: list[Part] = []
        self.message = -1
        """Index of the message that is added now; -1: it is none of the request's messages."""

    def add(self, tag: bytes, content: Bytes) -> None:
        """Append a message: `tag` is its role, `content` its canonical bytes. Its end closes a block."""
        self._from_tool = tag == b"tool"
        if tag == b"assistant":
            self._answers_at.append(len(self._hashes))
        if self._opening < 0 and tag not in OPERATOR:
            self._opening = len(self._hashes)
        self._parts.append((self.message, tag, content, len(self._hashes)))
        self._hash = _hash(tag, self._hash)
        self._add_bytes(content)

    def add_open(self, tag: bytes, content: Bytes) -> None:
        """Append what ends the prompt now and may go on in the same breath next time: a text or ids to be completed."""
        self.add(tag, content)
        self._open_text = content
        if len(self._ends) > 1:
            full = BLOCK_BYTES if len(self._ends) <= LONG_PROMPT_BLOCKS else LONG_BLOCK_BYTES
            if self._ends[-1] - self._ends[-2] < full:
                self._hashes.pop()
                self._ends.pop()

    def _add_bytes(self, data: Bytes) -> None:
        if not data:
            return
        length, hashes, start = len(data), self._hashes, self._size
        if len(hashes) + length // BLOCK_BYTES >= LONG_PROMPT_BLOCKS:
            self._add_long(data)
            return
        self._size = end = start + length
        digest = self._hash
        if length > BLOCK_BYTES:
            append = hashes.append
            for begin in range(0, length, BLOCK_BYTES):
                digest = _hash(data[begin : begin + BLOCK_BYTES], digest)
                append(digest)
            self._ends.extend(range(start + BLOCK_BYTES, end, BLOCK_BYTES))
        else:
            digest = _hash(data, digest)
            hashes.append(digest)
        self._ends.append(end)
        self._hash = digest

    def _add_long(self, data: Bytes) -> None:
        start, length = 0, len(data)
        while start < length:
            block = BLOCK_BYTES if len(self._hashes) < LONG_PROMPT_BLOCKS else LONG_BLOCK_BYTES
            self._hash = _hash(data[start : start + block], self._hash)
            self._hashes.append(self._hash)
            start += block
            self._ends.append(self._size + min(start, length))
        self._size += length

    def add_media(self, part: bytes) -> None:
        """Append a media part by the digest of the whole of it: data URLs share their leading bytes."""
        self._parts.append((self.message, MEDIA, part, len(self._hashes)))
        self._hash = _hash(part, self._hash)
        self._hashes.append(self._hash)
        self._size += MEDIA_BYTES
        self._ends.append(self._size)

    def build(self) -> Prompt | None:
        """Return the prompt; None when it is shorter than one block: it has no key and shares none."""
        if self._size < BLOCK_BYTES:
            return None
        opening = max(0, self._opening)
        return Prompt(
            self._hashes,
            self._ends,
            self._answers_at,
            self._bytes_per_token,
            self._open_text,
            opening,
            self._from_tool,
            self._parts,
        )
