"""docs/reference/errors.md says what the router itself says."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from router.app import cli
from router.proxy.errors import RETRY_AFTER_S, RouterError, error_body, error_event
from tests.contract.pages import DOCS, blocks, code, codes, section, table

PAGE = DOCS / "reference" / "errors.md"


def body(error: RouterError, path: str) -> dict[str, str]:
    found: dict[str, str] = msgspec.json.decode(error_body(error, path))["error"]
    return found


def test_every_error_is_documented_as_it_is_given() -> None:
    expected = {
        error.code: (
            str(error.status),
            body(error, "/v1/chat/completions")["type"],
            body(error, "/v1/messages")["type"],
            str(RETRY_AFTER_S.get(error, "")),
        )
        for error in RouterError
    }
    rows = table(PAGE, "In answers")
    documented = {
        code(name): (status, code(kind), code(anthropic), retry) for name, status, kind, anthropic, retry, _ in rows
    }
    assert documented == expected
    assert len(rows) == len(RouterError)


def test_the_example_is_what_is_sent() -> None:
    (example,) = [json.loads(block.text) for block in blocks(PAGE) if block.language == "json"]
    error = next(error for error in RouterError if error.code == example["error"]["code"])
    assert example == msgspec.json.decode(error_body(error, "/v1/completions"))


@pytest.mark.parametrize(
    ("stream", "path"),
    [
        ("chat, completions", "/v1/chat/completions"),
        ("`/v1/messages`", "/v1/messages"),
        ("`/v1/responses`", "/v1/responses"),
    ],
)
def test_the_last_event_of_a_broken_stream_is_documented(stream: str, path: str) -> None:
    rows = {row[0]: row[1] for row in table(PAGE, "In the middle of a stream")}
    event = error_event(RouterError.UPSTREAM_DIED, path).decode()
    begins = codes(rows[stream])[0].split("{")[0]
    assert event.startswith(begins), event
    if "code" in rows[stream]:
        assert '"code":"upstream_died"' in event


def test_every_code_named_as_one_in_prose_exists() -> None:
    known = {error.code for error in RouterError}
    for page in sorted(DOCS.rglob("*.md")):
        for name in re.findall(r"\b(?:upstream|no|body|bad)_(?:died|failed|silent|invalid|replica|too_large|request)\b",
                               page.read_text()):  # fmt: skip
            assert name in known, f"{page.name}: {name}"


def test_the_exit_codes_are_the_command_lines() -> None:
    documented = {int(number) for number, _ in table(PAGE, "On the command line")}
    assert documented == {0, 1, cli.UNUSABLE, cli.INTERRUPTED}


def test_the_answer_to_an_unknown_path_is_quoted() -> None:
    assert '"Not Found: GET /nothing"' in section(PAGE, "On the client port, beside the engines' paths")
