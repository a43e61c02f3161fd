"""What each turn of a conversation keeps of the one before, from their bodies alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from router.app.dashboard.causes import words_of_causes
from router.app.settings.sources import ConfigError
from router.app.terminal.bodies import Body
from router.app.terminal.explained import pairs
from router.app.terminal.numbers import count, plain
from router.core.misses.change import Difference, difference, scope_changed
from router.core.misses.parts import hash_parts
from router.core.misses.types import Cause
from router.core.token_size import TokenSize
from router.core.types import Prompt
from router.proxy.openai import SHAPES, read_request

_TOKEN_BYTES = TokenSize().bytes_per_token


class Sent(NamedTuple):
    """One turn as it was sent."""

    name: str
    model: str
    salt: object
    prompt: Prompt | None
    """None where it is shorter than one block."""

    @property
    def tokens(self) -> int:
        """Its estimated length."""
        return 0 if self.prompt is None else _tokens(self.prompt, self.prompt.total_bytes)

    @property
    def messages(self) -> int:
        """How many messages it has."""
        return len({part[0] for part in _parts(self.prompt) if part[0] >= 0})


class Step(NamedTuple):
    """From one turn to the next. Tokens are estimated."""

    before: Sent
    after: Sent
    kept_tokens: int
    """Of the prompt before, found again at the start of the next: whole blocks, as the router matches them."""
    change: Difference | None
    """None: nothing was changed."""

    @property
    def history_tokens(self) -> int:
        """What could be cached when the next turn comes."""
        return min(self.before.tokens, self.after.tokens) if self.change is None else self.before.tokens

    @property
    def lost_tokens(self) -> int:
        """What will have to be computed again."""
        return 0 if self.change is None else max(0, self.history_tokens - self.kept_tokens)


def steps(bodies: Sequence[Body], path: str) -> list[Step]:
    """Compare each body with the one before. ConfigError where the bodies of `path` are not read."""
    if path not in SHAPES:
        raise ConfigError(f"the router reads no prompts of {plain(path)}; it reads those of {', '.join(SHAPES)}")
    return [_step(before, after) for before, after in pairwise([_read(body, path) for body in bodies])]


def _read(body: Body, path: str) -> Sent:
    routing = read_request(path, body.data, None)
    if routing.shape != SHAPES[path]:
        raise ConfigError(f"{body.name} is no body of {path}: its messages or its prompt are not of that form")
    return Sent(body.name, routing.model, json.loads(body.data).get("cache_salt") or "", routing.prompt)


def _step(before: Sent, after: Sent) -> Step:
    old, new = before.prompt, after.prompt
    if before.model != after.model:
        return Step(before, after, 0, scope_changed(Cause.MODEL_CHANGED))
    if before.salt != after.salt:
        return Step(before, after, 0, scope_changed(Cause.SALT_CHANGED))
    if old is None or new is None:
        return Step(before, after, 0, None)
    blocks = _common(old, new)
    kept_tokens = _tokens(old, old.ends_bytes[blocks - 1]) if blocks else 0
    if old.open_text is not None or new.open_text is not None:
        return Step(before, after, kept_tokens, _text_change(old, new))
    parts = _parts(new)
    return Step(before, after, kept_tokens, difference(_hashed(old), hash_parts(parts, _nothing_known), parts))


def _common(old: Prompt, new: Prompt) -> int:
    """Return how many leading blocks are the same."""
    pairs_ = zip(old.hashes, new.hashes, strict=False)
    return next(
        (place for place, (one, other) in enumerate(pairs_) if one != other), min(len(old.hashes), len(new.hashes))
    )


def _text_change(old: Prompt, new: Prompt) -> Difference | None:
    """Compare texts, or token ids, to be completed: they have no parts to be told apart by."""
    was, now = bytes(old.open_text or b""), bytes(new.open_text or b"")
    if now.startswith(was) or was.startswith(now):
        return None
    return Difference(Cause.EDITED, None, "other", 0.0)


def _hashed(prompt: Prompt) -> Any:
    return hash_parts(_parts(prompt), _nothing_known)


def _nothing_known(_: int) -> None:
    return None


def _parts(prompt: Prompt | None) -> list[Any]:
    return [] if prompt is None else prompt.parts or []


def _tokens(prompt: Prompt, size_bytes: int) -> int:
    return round(size_bytes / (prompt.bytes_per_token or _TOKEN_BYTES))


def steps_text(compared: Sequence[Step]) -> RenderableType:
    """Return what each turn keeps of the one before, turn by turn."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for number, step in enumerate(compared, 2):
        grid.add_row(f"turn {number}", _step_text(step))
    note = f"Estimated at {_TOKEN_BYTES:g} bytes a token; names are those of the later turn."
    return Group(grid, Text(note, "dim"))


def _step_text(step: Step) -> RenderableType:
    name = (f"  {plain(step.after.name)}", "dim")
    if step.change is None:
        return Text.assemble(*_kept(step), name)
    lost = f"loses {step.lost_tokens:,} of {count(step.history_tokens, 'token')}"
    return Group(Text.assemble((lost, "bold yellow"), name), pairs(_lost(step, step.change)))


def _kept(step: Step) -> list[tuple[str, str]]:
    if not step.history_tokens:
        return [("is not recognised: the turn before, or this one, is shorter than one block", "dim")]
    new_tokens = step.after.tokens - step.history_tokens
    return [(f"keeps all {count(step.history_tokens, 'token')}", "bold green"), (f" and adds {new_tokens:,}", "")]


def _lost(step: Step, change: Difference) -> list[tuple[str, str | Text]]:
    where = change.role if change.message is None else f"messages[{change.message}] ({change.role})"
    messages = f"{change.message or 0} of {count(step.before.messages, 'message')}"
    return [
        ("kept", f"{messages}, {count(step.kept_tokens, 'token')}"),
        ("changed", Text.assemble(f"{where}: ", (change.cause, "bold"))),
        ("cure", words_of_causes()[change.cause].cure),
    ]


def as_json(step: Step) -> dict[str, Any]:
    """Return a step as plain values."""
    change = step.change
    return {
        "from": step.before.name,
        "to": step.after.name,
        "history_tokens": step.history_tokens,
        "kept_tokens": step.history_tokens - step.lost_tokens,
        "lost_tokens": step.lost_tokens,
        "cause": None if change is None else change.cause.value,
        "message": None if change is None else change.message,
        "role": None if change is None else change.role,
    }
