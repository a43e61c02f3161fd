"""What stands in Redis: names of keys, values, the operations of write.lua, and the envelope of a bulletin."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

import msgspec

from router.adapters.redis_store.sealing import HASH_BYTES, Keyring
from router.core.landmarks import Found, Holder, Landmark, Question, rest_hash
from router.core.news import END_BYTES, Bulletin, News, Opened
from router.core.types import ReplicaId

VERSION = 1
"""Of everything here. Routers of another version have other keys and pass over each other's bulletins."""

WRITE_SCRIPT: bytes = files(__package__).joinpath("write.lua").read_bytes()

Operation = tuple[str, ReplicaId, int, int, int, int, int] | tuple[str, ReplicaId, ReplicaId]


class Names:
    """Names of keys and of the channel, all in one slot of a cluster by the part in braces."""

    def __init__(self, prefix: str, keyring: Keyring) -> None:
        base = f"{{{prefix}}}:{VERSION}"
        self.channel = f"{base}:news"
        self._turn = f"{base}:t:".encode()
        self._home = f"{base}:h:".encode()
        self.orders = f"{base}:o:".encode() + keyring.keyed_hash(0)
        """Where operators' orders stand. Routers with another secret have another place."""
        self.keyring = keyring

    def turn(self, block: int) -> bytes:
        """Name the key of a landmark by its block's hash."""
        return self._turn + self.keyring.keyed_hash(block)

    def home(self, key: int) -> bytes:
        """Name the key of a session or stored object."""
        return self._home + self.keyring.keyed_hash(key)


class _Turn(msgspec.Struct, array_like=True, gc=False):
    """The value of a landmark's key."""

    prompt_tokens: int
    answer_tokens: int
    rest_bytes: int
    rest_check: int
    holders: list[tuple[ReplicaId, int, int]]
    """Replica, Unix time at which its engine had started (0: unknown), Unix time of the last use."""


class Envelope(msgspec.Struct, array_like=True, gc=False):
    """A bulletin on its way."""

    version: int
    router: str
    number: int
    """Grows from bulletin to bulletin of a router."""
    sealed: bool
    body: bytes


encode = msgspec.msgpack.Encoder().encode
_decode_turn = msgspec.msgpack.Decoder(_Turn).decode
_decode_envelope = msgspec.msgpack.Decoder(Envelope).decode
_decode_bulletin = msgspec.msgpack.Decoder(Bulletin).decode


def held(landmark: Landmark, replica: ReplicaId, engine_start_s: float | None, keyring: Keyring) -> Operation:
    """Return the operation that writes down where a prefix is held."""
    check = 0 if landmark.rest is None else keyring.check(landmark.rest)
    start_s = round(engine_start_s or 0)
    return "held", replica, start_s, landmark.prompt_tokens, landmark.answer_tokens, landmark.rest_bytes, check


def home(replica: ReplicaId, expected: ReplicaId | None) -> Operation:
    """Return the operation that moves a session, if it still is where it is thought to be."""
    return "home", replica, expected or ""


def found(question: Question, values: Sequence[bytes | None], keyring: Keyring) -> list[Found]:
    """Read the values of the keys of a question's positions. What can't be read is taken for absent."""
    said: list[Found] = []
    for position, value in zip(question.positions, values, strict=True):
        turn = _turn(value)
        if turn is not None:
            said.append(_found(question, position, turn, keyring))
    return said


def _turn(value: bytes | None) -> _Turn | None:
    try:
        return None if value is None else _decode_turn(value)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _found(question: Question, position: int, turn: _Turn, keyring: Keyring) -> Found:
    holders = [Holder(replica, float(start_s) if start_s else None) for replica, start_s, _ in turn.holders]
    prompt = question.prompt
    if prompt is None or prompt.open_text is None:
        return Found(position, holders, turn.prompt_tokens, turn.answer_tokens)
    rest = rest_hash(prompt, position, turn.rest_bytes)
    if rest is None or keyring.check(rest) != turn.rest_check:
        return Found(position, holders)  # another text with the same beginning ended here
    return Found(position, holders, turn.prompt_tokens, turn.answer_tokens, turn.rest_bytes)


def pack(router: str, number: int, bulletin: Bulletin, keyring: Keyring) -> bytes:
    """Put a bulletin into its envelope."""
    return encode(Envelope(VERSION, router, number, keyring.keyed, keyring.seal(router, number, encode(bulletin))))


def unpack(data: bytes) -> Envelope | None:
    """Open an envelope; None for what is none, or of another version."""
    try:
        envelope = _decode_envelope(data)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return envelope if envelope.version == VERSION else None


def read(envelope: Envelope, keyring: Keyring) -> Bulletin | None:
    """Read the bulletin in an envelope; None where it is not meant for routers with our secret."""
    if envelope.sealed != keyring.keyed:
        return None
    body = keyring.unseal(envelope.router, envelope.number, envelope.body)
    try:
        bulletin = None if body is None else _decode_bulletin(body)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return bulletin if bulletin is not None and all(map(_is_sound, bulletin.news)) else None


def _is_sound(news: News) -> bool:
    """Tell whether a prompt's blocks are whole numbers and have an end each: anybody may publish without a secret."""
    if not isinstance(news, Opened):
        return True
    blocks, left_over = divmod(len(news.ends_bytes), END_BYTES)
    return not left_over and len(news.hashes) == blocks * HASH_BYTES
