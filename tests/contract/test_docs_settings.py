"""docs/reference/settings.md says what the model says, both ways."""

import re
from pathlib import Path

from router.app.settings.model import Settings
from router.app.settings.reference import markdown
from router.app.settings.text import about, range_text, shown

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
ROW = re.compile(r"^\| `(\w+)` \|(.*)\|(.*)\|(.*)\|(.*)\|(.*)\|$", re.MULTILINE)


def documented() -> dict[str, tuple[str, ...]]:
    rows = ROW.findall(PAGE.read_text())
    assert len(rows) == len({name for name, *_ in rows}), "a setting stands in the page twice"
    return {name: tuple(cell.strip() for cell in cells) for name, *cells in rows}


def test_the_page_has_every_setting_and_no_other() -> None:
    assert list(documented()) == list(Settings.model_fields)


def test_each_row_says_what_the_model_says() -> None:
    for name, row in documented().items():
        field = Settings.model_fields[name]
        changed_by = "reload" if about(field).live else "restart"
        expected = (shown(field.default), range_text(field), changed_by, field.description, about(field).why)
        assert row == expected, name


def test_each_setting_says_what_it_is_and_why_its_default() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description and field.description.endswith("."), name
        assert about(field).why.endswith("."), name
        assert "|" not in field.description + about(field).why, f"{name}: a | would break the table"


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text() == markdown(), "run: warmroute settings-reference > docs/reference/settings.md"


def test_a_number_in_a_setting_carries_its_unit_in_the_name() -> None:
    counts = {"port", "admin_port", "max_retries", "workers", "health_failures", "max_queued_requests"}
    counts |= {"key_requests_per_minute", "key_tokens_per_minute", "key_concurrent_requests", "max_connections"}
    counts |= {"record_files"}
    for name, field in Settings.model_fields.items():
        if name not in counts and field.annotation is not bool and isinstance(field.default, int | float):
            assert re.search(r"_(s|ms|bytes|ratio|tokens|tokens_per_s)$", name), name
