"""docs/how-to/check-a-set-up.md describes every check, and the variables that keys come from."""

from __future__ import annotations

from router.app.doctor.command import ADMIN_TOKEN, CLIENT_KEY, ENGINE_KEY
from router.app.doctor.findings import Check
from tests.contract.pages import DOCS, code, table

PAGE = DOCS / "how-to" / "check-a-set-up.md"


def test_every_check_is_described_once() -> None:
    documented = [code(row[0]) for row in table(PAGE, "What is looked at")]
    assert sorted(documented) == sorted(check.value for check in Check)


def test_the_variables_are_those_that_are_read() -> None:
    assert [code(row[0]) for row in table(PAGE, "Keys")] == [CLIENT_KEY, ADMIN_TOKEN, ENGINE_KEY]
