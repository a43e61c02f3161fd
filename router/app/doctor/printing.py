"""Shows a report: a table on a terminal, plain lines elsewhere, or JSON."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from router.app.doctor.examine import Report
from router.app.doctor.findings import Check, Finding, Level

NAMED = 2
"""So many replicas are named, without their addresses; more are counted, so that a large fleet's report stays short."""

_STYLES = {Level.OK: "green", Level.NOTE: "cyan", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}


def print_report(report: Report, console: Console, as_json: bool) -> None:
    """Print a report."""
    if as_json:
        print(as_text(report))
        return
    rows = gathered(report.findings)
    if console.is_terminal:
        console.print(_table(rows))
    else:
        for finding in rows:
            print(line_of(finding))
    print(summary(report.findings))


def as_text(report: Report) -> str:
    """Return a report as JSON, each finding about one thing."""
    counts = Counter(finding.level.value for finding in report.findings)
    shown = {
        "version": report.version,
        "sound": report.sound,
        "counts": {level.value: counts[level.value] for level in Level},
        "findings": [asdict(finding) for finding in report.findings],
    }
    return json.dumps(shown, indent=2)


def gathered(findings: Sequence[Finding]) -> list[Finding]:
    """Put findings that differ only in whom they are about into one."""
    about: dict[tuple[Level, Check, str, str, str], list[str]] = defaultdict(list)
    for finding in findings:
        about[finding.level, finding.check, finding.what, finding.why, finding.change].append(finding.about)
    return [Finding(key[0], key[1], _names(names), *key[2:]) for key, names in about.items()]


def _names(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    return ", ".join(name.partition(" ")[0] for name in names) if len(names) <= NAMED else f"{len(names)} replicas"


def line_of(finding: Finding) -> str:
    """Return a finding as plain lines: level, check, whom it is about, what; below it why, and what to change."""
    lines = [f"{finding.level.value:<8} {finding.check.value:<16} {finding.about}: {finding.what}"]
    lines += [f"{'':<8} {name:<16} {text}" for name, text in (("why", finding.why), ("change", finding.change)) if text]
    return "\n".join(lines)


def _table(rows: Sequence[Finding]) -> Table:
    shown = Table("", "check", "about", "found", box=box.SIMPLE_HEAD, pad_edge=False)
    for finding in rows:
        found = Text(finding.what)
        if finding.why:
            found.append(f"\n{finding.why}", "dim")
        if finding.change:
            found.append(f"\n-> {finding.change}", _STYLES[finding.level])
        level = Text(finding.level.value, _STYLES[finding.level])
        shown.add_row(level, Text(finding.check.value, no_wrap=True), Text(finding.about), found)
    return shown


def summary(findings: Sequence[Finding]) -> str:
    """Return how many there are of each level, worst first, and in how many lines where that is another number."""
    counts = Counter(finding.level for finding in findings)
    lines = Counter(finding.level for finding in gathered(findings))
    names = {Level.PROBLEM: "problem", Level.WARNING: "warning", Level.NOTE: "note", Level.OK: "check"}
    told = [
        f"{_counted(counts[level], name)}{' ok' * (level is Level.OK)}{_in_lines(counts[level], lines[level])}"
        for level, name in names.items()
    ]
    return ", ".join(told)


def _counted(count: int, name: str) -> str:
    return f"{count} {name}{'s' * (count != 1)}"


def _in_lines(count: int, lines: int) -> str:
    return f" in {_counted(lines, 'line')}" if lines != count else ""
