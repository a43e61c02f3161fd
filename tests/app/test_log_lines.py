"""What somebody calls something can't begin a line of the log, or speak to the terminal that shows it."""

from __future__ import annotations

import logging
import sys

from hypothesis import given
from hypothesis import strategies as st

from router.app.process.log_lines import MAX_CHARACTERS, OneLine


def line(text: str, error: BaseException | None = None) -> str:
    fault = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("warmroute", logging.WARNING, "", 0, "model %s", (text,), fault)
    return OneLine("%(message)s").format(record)


def test_ends_of_lines_and_escapes_are_shown_as_what_they_are() -> None:
    assert line("a\nstopped: every request\r\x1b[2J\u2028b") == (
        "model a\\x0astopped: every request\\x0d\\x1b[2J\\u2028b"
    )


@given(st.text(max_size=50))
def test_every_text_is_one_line(text: str) -> None:
    assert len(line(text).splitlines()) == 1


def test_a_name_of_a_megabyte_is_cut() -> None:
    assert len(line("x" * (1 << 20))) == MAX_CHARACTERS


def test_a_traceback_keeps_its_lines() -> None:
    try:
        raise ValueError("why")
    except ValueError:
        shown = line("m", sys.exc_info()[1]).splitlines()
    assert shown[0] == "model m"
    assert shown[-1] == "ValueError: why"
    assert len(shown) > 3
