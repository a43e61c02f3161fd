"""docs/reference/history.md has every field that the admin API shows of the past, in the order in which it comes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from router.adapters.history import kept, sessions
from router.adapters.history.columns import Columns
from router.adapters.history.counting import MAX_MODELS
from router.app.admin.describe import describe_all
from router.app.admin.feed import DECISIONS_PER_S
from router.app.admin.overview import overview
from router.app.admin.seeing import describe_session
from router.app.house import House
from router.app.settings.model import Settings
from router.app.wiring import build
from router.core.history import layout
from router.core.misses.types import Change
from tests.adapters.history.counted import turn
from tests.adapters.records import decision, record
from tests.contract.pages import DOCS, codes, section, table

PAGE = DOCS / "reference" / "history.md"


@pytest.fixture
async def house() -> Any:
    house = build(Settings(replica=("http://replica.example:8000",)))
    there = decision(next(iter(house.endpoints)))
    house.plane.audience.requests_finished([record(decision=there, turn=turn(lost_tokens=5))])
    yield house
    await house.close()


def first_codes(heading: str, number: int = 0) -> list[str]:
    """All that the first cells of a table name."""
    return [name for row in table(PAGE, heading, number) for name in codes(row[0])]


def before_tables(heading: str) -> list[str]:
    """All fields that are named before the first table."""
    return [name for name in codes(section(PAGE, heading).partition("|")[0]) if not name.startswith("/")]


def said(heading: str, number: int, field: str) -> str:
    """What the table says of a field."""
    return next(row[1] for row in table(PAGE, heading, number) if field in codes(row[0]))


async def test_the_overview(house: House) -> None:
    shown = overview(house)
    assert sorted([*before_tables("Overview"), *first_codes("Overview")]) == sorted(shown)
    window = shown["windows"]["5m"]
    assert first_codes("Overview", 1) == list(window)
    assert list(window)[: list(window).index("saved_prefill_s") + 1] == list(shown["models"]["m"]["5m"])
    assert codes(said("Overview", 0, "windows")) == list(shown["windows"])
    assert codes(said("Overview", 1, "causes")) == list(window["causes"][0])
    assert codes(said("Overview", 1, "phases")) == list(layout.PHASES)
    lengths = [row["up_to_tokens"] for row in window["ttft_by_length"]]
    assert f"{', '.join(map(str, lengths[:-1]))} and null" in said("Overview", 1, "ttft_by_length")
    assert set(window["returns"]) <= set(codes(said("Overview", 1, "returns")))
    assert f"Up to {MAX_MODELS} " in said("Overview", 0, "models")


async def test_a_replica(house: House) -> None:
    (row,), (known,) = overview(house)["replicas"], describe_all(house)
    assert sorted(first_codes("Overview", 2)) == sorted(set(flat(row)) - set(flat(known)))


def flat(row: dict[str, Any]) -> Iterator[str]:
    for name, value in row.items():
        if name == "mirror":
            yield from (f"{name}.{inner}" for inner in value)
        else:
            yield name


async def test_the_columns(house: House) -> None:
    shown = await Columns(house.history).show("24h")
    assert [*before_tables("Steps"), *first_codes("Steps")] == list(shown)
    assert codes(said("Steps", 0, "ttft")) == list(shown["ttft"])
    assert f"for a day {shown['step_s']} s" in section(PAGE, "Steps")


async def test_sessions_and_turns(house: House) -> None:
    ((ident, session),) = house.sessions.latest()
    assert first_codes("Sessions") == list(describe_session(ident, session))
    assert first_codes("Sessions", 1) == list(sessions.Turn.__struct_fields__)
    assert codes(said("Sessions", 1, "change")) == list(Change.__struct_fields__)


def test_the_limits() -> None:
    page = PAGE.read_text().replace("\n", " ")
    limits = f"{sessions.MAX_SESSIONS:,} sessions, {sessions.MAX_TURNS} turns each, {sessions.MAX_ALL_TURNS:,} turns in"
    assert limits in page
    assert f"of the last {sessions.MAX_MISSES:,} turns that lost tokens" in page
    assert f"up to {DECISIONS_PER_S} a second" in page
    state = (DOCS / "how-to" / "keep-state.md").read_text().replace("\n", " ")
    assert f"{kept.MAX_SESSIONS} sessions, {kept.MAX_TURNS} turns each" in state
