"""Requests for tests that play a fleet: named by a few numbers, the same in every process.

The requests of one `Ask.name` are one conversation: each turn's prompt goes on from the one before.
"""

from __future__ import annotations

from array import array
from functools import cache

import msgspec

from router.core.prompt import PromptBuilder, scope_hash, session_hash
from router.core.token_ids import TokenIds, token_scope
from router.core.types import Prompt, RoutingRequest

TOKEN_BYTES = 4
"""Of the tokenizer of this world: what is believed of every model at first, so that estimates are near the truth."""

ENGINE_BLOCK_TOKENS = 16

_ENGINE_BITS = 0x0F0F_F0F0_00FF_FF00


class Ask(msgspec.Struct, frozen=True, array_like=True):
    """One request."""

    name: int
    turns: int = 1
    model: str = "m"
    form: str = "chat"
    """`chat`, `text` (one that is to be completed), `short` (no key), or `unknown` (a body that is not read)."""
    streaming: bool = True
    session: bool = False
    stored: int | None = None
    tokens: bool = False
    """Whether a tokenizer was in time."""
    batch: bool = False


def texts(name: int, turns: int) -> list[tuple[bytes, bytes]]:
    """Return the messages of a conversation: a system prompt that half of all have, then as many turns.

    Those of even names end with an engine's block.
    """
    said = [(b"system", f"rules {name % 2} ".encode() * 100)]
    for turn in range(turns):
        if turn:
            said.append((b"assistant", f"answer {name} {turn} ".encode() * (20 + 30 * turn)))
        said.append((b"user", f"question {name} {turn} ".encode() * (10 + 70 * ((name + turn) % 3))))
    if name % 2:
        return said
    whole = TOKEN_BYTES * ENGINE_BLOCK_TOKENS
    return [(tag, content.ljust(-(-len(content) // whole) * whole)) for tag, content in said]


def _continued(ask: Ask) -> bytes:
    """Return a text that grows with each turn; half of all begin alike."""
    return f"story {ask.name % 2} ".encode() * 100 + f"part {ask.name} ".encode() * (150 * ask.turns)


@cache
def prompt_of(ask: Ask) -> Prompt | None:
    """Return the prompt of an ask; None where it has none that is a key."""
    builder = PromptBuilder(scope_hash(ask.model, ""))
    if ask.form == "text":
        builder.add_open(b"text", _continued(ask))
    elif ask.form == "chat":
        for tag, content in texts(ask.name, ask.turns):
            builder.add(tag, content)
    else:
        return None
    return builder.build()


@cache
def token_ids_of(ask: Ask) -> TokenIds:
    """Return an ask's prompt as tokens: `TOKEN_BYTES` of a message each."""
    said = [(b"text", _continued(ask))] if ask.form == "text" else texts(ask.name, ask.turns)
    ids = array("I")
    for tag, content in said:
        data = tag.ljust(12) + content
        starts = range(0, len(data), TOKEN_BYTES)
        ids.extend(int.from_bytes(data[start : start + TOKEN_BYTES], "little") for start in starts)
    return TokenIds(ids, token_scope(None, None))


@cache
def request_of(ask: Ask) -> RoutingRequest:
    """Return an ask as routing reads it."""
    scope = scope_hash(ask.model, "")
    prompt = prompt_of(ask)
    return RoutingRequest(
        model=ask.model,
        shape="completions" if ask.form == "text" else "chat" if ask.form == "short" else ask.form,
        prompt=prompt,
        body_bytes=400 if prompt is None else prompt.total_bytes,
        streaming=ask.streaming,
        session=session_hash(scope, f"session {ask.name}") if ask.session else None,
        session_is_explicit=ask.session,
        stored=None if ask.stored is None else session_hash(scope, f"stored {ask.stored}"),
        batch=ask.batch,
        tokens=token_ids_of(ask) if ask.tokens and prompt is not None else None,
    )


def engine_blocks(ask: Ask) -> list[int]:
    """Return the engine's own hashes of an ask's blocks."""
    return [name ^ _ENGINE_BITS for name in token_ids_of(ask).hashes(ENGINE_BLOCK_TOKENS)]
