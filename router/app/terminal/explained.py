"""What the router says of one request: the decision with its prices, and what becomes of the turn's history."""

from __future__ import annotations

import msgspec
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from router.app.dashboard.causes import words_of_causes
from router.app.terminal.numbers import count, plain, seconds


class Price(msgspec.Struct):
    """One replica's row of the score table, in seconds and tokens."""

    replica: str
    total_s: float
    queue_s: float
    own_s: float
    balance_s: float
    matched_tokens: int = 0
    evicted_s: float = 0.0
    streams_s: float = 0.0


class Departure(msgspec.Struct):
    """Where a prompt departs from the turn before it."""

    cause: str
    message: int | None = None
    role: str = ""
    kept_tokens: int = 0


class Turn(msgspec.Struct):
    """What would become of the turn's history."""

    number: int
    history_tokens: int
    cached_tokens: int
    lost_tokens: int
    session: str = ""
    idle_s: float | None = None
    cause: str | None = None
    change: Departure | None = None


class Explained(msgspec.Struct):
    """What /api/explain answers."""

    shape: str
    blocks: int
    replica: str
    reason: str
    prompt_tokens: int
    matched_tokens: int
    home: str | None = None
    scores: list[Price] = []
    turn: Turn | None = None

    @property
    def loses(self) -> bool:
        """Whether tokens that could have been cached would be computed again."""
        return self.turn is not None and self.turn.lost_tokens > 0


def explained_text(name: str, explained: Explained) -> RenderableType:
    """Return all of it, the decision first."""
    parts: list[RenderableType] = [Text(plain(name), "bold"), pairs(_request(explained))]
    if explained.scores:
        parts += [Text(), Padding(_prices(explained), (0, 0, 0, 2))]
    if explained.turn is not None:
        parts += [Text(), Text(_turn_title(explained.turn), "bold"), pairs(_turn(explained.turn))]
    return Group(*parts)


def _request(explained: Explained) -> list[tuple[str, str | Text]]:
    home = "it has no home yet" if explained.home is None else f"its home is {plain(explained.home)}"
    cached = explained.matched_tokens
    return [
        ("prompt", _prompt(explained)),
        ("goes to", Text.assemble((plain(explained.replica), "bold"), f" ({plain(explained.reason)}); {home}")),
        ("cached", f"about {count(cached, 'token')} there" if cached else "nothing"),
    ]


def _prompt(explained: Explained) -> str:
    length = f"about {count(explained.prompt_tokens, 'token')}"
    if explained.shape == "unknown":
        return f"not read: the body has not the form that the path asks for, or none is known; {length}"
    blocks = count(explained.blocks, "block") if explained.blocks else "shorter than one block"
    return f"{plain(explained.shape)}, {blocks}, {length}"


def _prices(explained: Explained) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="cyan")
    table.add_column("replica", no_wrap=True)
    for heading in ("total", "queue", "own", "balance", "evicted", "streams", "cached tokens"):
        table.add_column(heading, justify="right", no_wrap=True)
    for price in explained.scores:
        times = (price.total_s, price.queue_s, price.own_s, price.balance_s, price.evicted_s, price.streams_s)
        style = "bold green" if price.replica == explained.replica else ""
        table.add_row(plain(price.replica), *map(seconds, times), f"{price.matched_tokens:,}", style=style)
    return table


def _turn_title(turn: Turn) -> str:
    return f"turn {turn.number}" + (f" of session {plain(turn.session)}" if turn.session else "")


def _turn(turn: Turn) -> list[tuple[str, str | Text]]:
    rows: list[tuple[str, str | Text]] = [("history", _history(turn))]
    if turn.cause is not None:
        rows += [("cause", Text(plain(turn.cause), "bold yellow" if turn.lost_tokens else ""))]
    if turn.change is not None:
        rows += [("changed", _place(turn.change))]
    words = words_of_causes().get(turn.cause or "")
    return rows if words is None else [*rows, ("cure", words.cure)]


def _history(turn: Turn) -> str:
    idle = "" if turn.idle_s is None else f", unused for {seconds(turn.idle_s)}"
    if not turn.history_tokens:
        return "none"
    kept = f"{turn.cached_tokens:,} cached, {turn.lost_tokens:,} lost"
    return f"about {count(turn.history_tokens, 'token')}{idle}: {kept}"


def _place(change: Departure) -> str:
    """Return which message is the first that differs, and what stands before it unchanged."""
    role = plain(change.role)
    where = role if change.message is None else f"messages[{change.message}] ({role})"
    if not change.kept_tokens:
        return f"{where}, with nothing before it"
    return f"{where}; about {count(change.kept_tokens, 'token')} before it are as they were"


def pairs(rows: list[tuple[str, str | Text]]) -> RenderableType:
    """Return words with what they say, the latter wrapped within its column."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for word, said in rows:
        grid.add_row(word, said)
    return Padding(grid, (0, 0, 0, 2))
