"""docs/reference/decisions.md knows every reason and every outcome, and the fields of a decision."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from router.app.admin.describe import describe_decision
from router.core.fleet import Fleet
from router.core.health import BUSY_HOLD_S, MAX_BUSY_HOLD_S
from router.core.misses.links import CERTAIN_BYTES
from router.core.misses.sessions import MOST_PARTS, SESSIONS_BYTES
from router.core.misses.types import Cause, Change, TurnAccount
from router.core.prompt import BLOCK_BYTES
from router.core.replica import BUSY_S
from router.core.types import FAILURES, OutcomeKind, Reason
from router.proxy.explaining import explain_line
from tests.contract.pages import DOCS, code, section, table
from tests.core.worlds import chat

PAGE = DOCS / "reference" / "decisions.md"
CURES = DOCS / "how-to" / "why-a-turn-missed.md"


def names(rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [code(row[0]) for row in rows]


def test_every_reason_is_documented() -> None:
    assert names(table(PAGE, "Reasons")) == [reason.value for reason in Reason]


def test_every_cause_is_documented_and_has_a_cure() -> None:
    causes = [cause.value for cause in Cause]
    assert names(table(PAGE, "Causes")) == causes
    cures = [*table(CURES, "What the client can cure"), *table(CURES, "What the fleet can cure")]
    assert sorted(names(cures)) == sorted(causes)


def test_the_members_of_an_account_are_documented() -> None:
    change = Change(Cause.EDITED, 3, "user", 100)
    account = TurnAccount("s-1", 2, 1.0, 64, 0, 64, Cause.EDITED, change)
    rows = table(CURES, "Read the account")
    said = explain_line(account).decode().strip().partition(": ")[2].split(", ")
    assert {code(row[0]) for row in rows if row[0]} == {member.partition("=")[0] for member in said}
    told = msgspec.to_builtins(account)
    flat = set(told) - {"change"} | {f"change.{name}" for name in told["change"]}
    assert {code(row[1]) for row in rows} == flat
    assert f"{SESSIONS_BYTES >> 20} MiB" in section(CURES, "Read the account")
    assert f"{CERTAIN_BYTES} bytes" in section(CURES, "What is not seen")
    assert f"{MOST_PARTS:,} messages" in section(CURES, "What is not seen")


def test_every_outcome_is_documented_with_what_it_does_to_the_replica() -> None:
    documented = {code(name): ejects for name, ejects, _ in table(PAGE, "Outcomes")}
    assert documented == {kind.value: "yes" if kind in FAILURES else "no" for kind in OutcomeKind}
    assert list(documented) == [kind.value for kind in OutcomeKind]


def test_the_fields_of_a_decision_and_of_a_score_are_documented() -> None:
    fleet = Fleet()
    fleet.add("r")
    described: dict[str, Any] = describe_decision(fleet.explain(chat(("user", "x" * 600)), 0.0))
    assert names(table(PAGE, "Prices", 0)) == list(described["scores"][0])
    assert names(table(PAGE, "Prices", 1)) == list(described)


def test_the_numbers_in_the_tables_are_the_constants() -> None:
    assert f"({BLOCK_BYTES} bytes)" in section(PAGE, "Reasons")
    outcomes = section(PAGE, "Outcomes")
    assert f"Adds {BUSY_S:g} s to the replica's queue for {BUSY_HOLD_S:g} s" in outcomes
    assert f"or for Retry-After up to {MAX_BUSY_HOLD_S:g} s." in outcomes
