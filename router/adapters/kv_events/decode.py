"""From the bytes of a published batch to events, whatever release of vLLM encoded them."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import xxhash

from router.core.engine_cache.types import Medium, Stored
from router.core.token_ids import token_scope

MAX_BATCH_BYTES = 64 << 20
"""A prompt of a million tokens takes 5 MB; what is larger is no batch."""

_BATCH = ("ts", "events", "data_parallel_rank")
_FIELDS = {
    "BlockStored": (
        "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys",
        "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window", "locality", "ownership", "session_id",
    ),
    "BlockRemoved": ("block_hashes", "medium", "group_idx", "locality", "ownership"),
    "AllBlocksCleared": (),
}  # fmt: skip
"""Names by position, for releases that write arrays: new fields were always added at the end (0.9 to 0.32)."""

_FULL_ATTENTION = frozenset({None, "full_attention", "mla_attention"})
"""Kinds of cache of which a hit needs every block from the first one on. Others keep a window."""

_UNREADABLE = (msgspec.DecodeError, RecursionError, KeyError, TypeError, ValueError, OverflowError, struct.error)

_MASK_64 = (1 << 64) - 1


class BatchError(ValueError):
    """The bytes are no batch of events."""


class StoredIn(NamedTuple):
    """Blocks were stored in a medium."""

    stored: Stored
    medium: Medium


class RemovedFrom(NamedTuple):
    """Blocks have left a medium."""

    hashes: list[int]
    medium: Medium


class Cleared(NamedTuple):
    """The GPU's cache was emptied."""


Event = StoredIn | RemovedFrom | Cleared


class Batch(NamedTuple):
    """What one engine step did to the cache."""

    events: list[Event]
    rank: int | None
    """Data-parallel rank of the engine; None: it does not say."""


_decoder = msgspec.msgpack.Decoder()


class Reader:
    """Reads the batches of one engine: what an event leaves out, an earlier one may have said."""

    def __init__(self) -> None:
        self._windowed: set[int] = set()
        """Groups of layers whose blocks alone make no hit: of these only stored blocks say what they are."""

    def read(self, payload: bytes) -> Batch:
        """Decode a batch. Events and fields that are not known here are passed over.

        Raises:
            BatchError: the bytes are something else.
        """
        if len(payload) > MAX_BATCH_BYTES:
            raise BatchError(f"a batch of {len(payload)} bytes")
        try:
            batch = _named(_decoder.decode(payload), _BATCH)
            events = [event for raw in batch["events"] if (event := self._event(raw)) is not None]
            return Batch(events, _rank(batch.get("data_parallel_rank")))
        except _UNREADABLE as error:
            raise BatchError(f"no batch of KV cache events: {error!r}") from error

    def _event(self, raw: Any) -> Event | None:
        tag = raw.get("type") if isinstance(raw, Mapping) else raw[0] if isinstance(raw, Sequence) and raw else None
        fields = _FIELDS.get(tag) if isinstance(tag, str) else None
        if fields is None:
            return None
        if tag == "AllBlocksCleared":
            return Cleared()
        event = _named(raw if isinstance(raw, Mapping) else raw[1:], fields)
        return self._stored(event) if tag == "BlockStored" else self._removed(event)

    def _stored(self, event: Mapping[str, Any]) -> StoredIn | None:
        group = event.get("group_idx")
        if event.get("kv_cache_spec_kind") not in _FULL_ATTENTION:
            self._windowed.add(group or 0)
            return None
        return StoredIn(_stored(event), _medium(event))

    def _removed(self, event: Mapping[str, Any]) -> RemovedFrom | None:
        if (event.get("group_idx") or 0) in self._windowed:
            return None
        return RemovedFrom(_hashes(event["block_hashes"]), _medium(event))


def _named(raw: Any, names: Sequence[str]) -> Mapping[str, Any]:
    """Return a map's fields, or an array's by the names of their positions."""
    if isinstance(raw, Mapping):
        return raw
    if not isinstance(raw, Sequence) or isinstance(raw, str | bytes):
        raise TypeError(f"neither array nor map: {type(raw).__name__}")
    return dict(zip(names, raw, strict=False))


def _rank(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _medium(event: Mapping[str, Any]) -> Medium:
    name = event.get("medium")
    if name is None or name == "GPU":
        return Medium.GPU
    return Medium.CPU if name == "CPU" and event.get("locality") != "REMOTE" else Medium.DISK


def _hashes(raw: Iterable[Any]) -> list[int]:
    return [_hash(value) for value in raw]


def _hash(value: Any) -> int:
    """Return 64 bits of a block's hash: vLLM's own integers are the last 8 of the 32 bytes."""
    if isinstance(value, bytes):
        return int.from_bytes(value[-8:], "big")
    if not isinstance(value, int):
        raise TypeError(f"a block hash is an integer or bytes, not {type(value).__name__}")
    return value & _MASK_64


def _stored(event: Mapping[str, Any]) -> Stored:
    hashes, parent = _hashes(event["block_hashes"]), event.get("parent_block_hash")
    lora_name, session, block_tokens = _text(event, "lora_name"), _text(event, "session_id"), event["block_size"]
    if not isinstance(block_tokens, int):
        raise TypeError("block_size is no number")
    salt, foreign = _own_keys(event.get("extra_keys"), lora_name, len(hashes), is_first=parent is None)
    return Stored(
        hashes=hashes,
        parent=None if parent is None else _hash(parent),
        token_ids=array("I", event["token_ids"]),
        block_tokens=block_tokens,
        scope=token_scope(lora_name, salt) if parent is None else None,
        foreign=foreign,
        label=None if session is None else label_of(session),
    )


def _text(event: Mapping[str, Any], name: str) -> str | None:
    value = event.get(name)
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} is no text")
    return value


def label_of(session: str) -> int:
    """Return the 64-bit hash by which a session's id is known."""
    return xxhash.xxh3_64_intdigest(session.encode("utf-8", "surrogatepass"))


def _own_keys(
    extra_keys: Sequence[Any] | None, lora_name: str | None, blocks: int, is_first: bool
) -> tuple[str | None, list[int] | None]:
    """Return the salt, and of each block a hash of what else it depends on (vLLM: `generate_block_hash_extra_keys`).

    A block's keys are the adapter's name, pairs of a media part and its offset, on the first block the cache salt.
    """
    if not extra_keys or not any(extra_keys):
        return None, None
    if len(extra_keys) != blocks:
        raise ValueError(f"{len(extra_keys)} extra keys for {blocks} blocks")
    salt, own = None, [list(keys or ()) for keys in extra_keys]
    for keys in own:
        if lora_name is not None and keys and keys[0] == lora_name:
            del keys[0]
    if is_first and own[0]:
        texts = [key for key in own[0] if isinstance(key, str)]
        if len(texts) == 1:
            salt = texts[0]
            own[0].remove(salt)
    if not any(own):
        return salt, None
    return salt, [xxhash.xxh3_64_intdigest(repr(keys).encode()) if keys else 0 for keys in own]
