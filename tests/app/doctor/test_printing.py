"""The report as lines, as a table and as JSON."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from router.app.doctor.examine import Report
from router.app.doctor.findings import Check, Finding, Level
from router.app.doctor.printing import gathered, line_of, print_report, summary

NAMES = [f"r-{number} (http://gpu-{number}:8000)" for number in range(3)]
OFF = Finding(Level.PROBLEM, Check.PREFIX_CACHING, NAMES[0], "is off", "all is computed", "turn it on")
SAME = [Finding(Level.OK, Check.REACHABLE, name, "answers") for name in NAMES]
REPORT = Report("0.1.0", (*SAME, OFF))


def test_what_is_the_same_is_said_once() -> None:
    assert [finding.about for finding in gathered(SAME)] == ["3 replicas"]
    assert [finding.about for finding in gathered(SAME[:2])] == ["r-0, r-1"]
    assert [finding.about for finding in gathered([*SAME[:1], OFF])] == [NAMES[0], NAMES[0]]


def test_a_line_has_what_why_and_what_to_change() -> None:
    assert line_of(OFF).splitlines() == [
        "problem  prefix-caching   r-0 (http://gpu-0:8000): is off",
        "         why              all is computed",
        "         change           turn it on",
    ]
    assert line_of(SAME[0]).count("\n") == 0


def test_the_summary_counts_checks_and_the_lines_that_they_are_shown_in() -> None:
    assert summary(REPORT.findings) == "1 problem, 0 warnings, 0 notes, 3 checks ok in 1 line"
    assert summary(SAME[:1]) == "0 problems, 0 warnings, 0 notes, 1 check ok"
    notes = [Finding(Level.NOTE, Check.VERSION, name, what) for name in NAMES for what in ("a", "b")]
    assert summary(notes) == "0 problems, 0 warnings, 6 notes in 2 lines, 0 checks ok"


def test_a_problem_makes_a_report_unsound_and_a_warning_does_not() -> None:
    warning = Finding(Level.WARNING, Check.CAPACITY, "r-1", "small")
    assert not REPORT.sound
    assert Report(None, (*SAME, warning)).sound


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(REPORT, Console(file=io.StringIO()), as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ok       reachable        3 replicas: answers"
    assert lines[-1] == summary(REPORT.findings)


def test_a_table_on_a_terminal() -> None:
    told = io.StringIO()
    print_report(REPORT, Console(file=told, force_terminal=True, width=100, color_system=None), as_json=False)
    assert "prefix-caching" in told.getvalue()
    assert "-> turn it on" in told.getvalue()


def test_json_has_every_finding_and_the_counts(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(REPORT, Console(), as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["sound"] is False
    assert told["version"] == "0.1.0"
    assert told["counts"] == {"ok": 3, "note": 0, "warning": 0, "problem": 1}
    assert [finding["about"] for finding in told["findings"]] == [*NAMES, NAMES[0]]
    assert told["findings"][-1] == {
        "level": "problem",
        "check": "prefix-caching",
        "about": NAMES[0],
        "what": "is off",
        "why": "all is computed",
        "change": "turn it on",
    }
