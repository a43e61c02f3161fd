"""Rules and dashboards name nothing that does not exist: metrics, labels, their values, recorded names, commands."""

from __future__ import annotations

import re
from functools import cache

import pytest

from router.adapters.redis_store.state import State as RedisState
from router.core.health import State
from router.core.misses.types import Cause
from router.core.types import OutcomeKind, Reason
from router.core.waiting import Priority
from tests.contract.pages import DOCS, ROOT, anchors, code, codes, prose, section, table, tables
from tests.contract.test_docs_commands import flags
from tests.deploy.shipped import Asked, alerts, asked_by_boards, asked_by_rules, boards, recorded, uses

GUIDE = DOCS / "how-to" / "alerts-and-grafana.md"
METRICS = DOCS / "reference" / "metrics.md"
EVERYWHERE = {"job", "instance"}
"""Labels that Prometheus gives to what it scrapes."""

OF_THE_PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_start_time_seconds"}
"""Not ours: the Prometheus client for Python shows them."""

VALUES: dict[str, set[str]] = {
    "cause": set(Cause),
    "reason": set(Reason),
    "kind": set(OutcomeKind),
    "state": {*State, *RedisState},
    "priority": {priority.name.lower() for priority in Priority},
    "code": {code(row[0]) for row in table(DOCS / "reference" / "errors.md", "In answers")},
    "phase": {code(row[0]) for row in tables(section(METRICS, "Where the time went"))[1]},
    "cache": {"warm", "cold"},
    "returned": {"in-time", "too-late"},
}
FREE = {"job", "instance", "replica", "model", "status"}
"""Labels whose values nobody can list."""

everything = pytest.mark.parametrize("asked", [*asked_by_rules(), *asked_by_boards()], ids=str)


@cache
def documented() -> dict[str, set[str]]:
    """Metric -> labels, with what a histogram has beside its name."""
    found: dict[str, set[str]] = {"up": set(), **{name: set() for name in OF_THE_PROCESS}}
    for rows in tables(prose(METRICS)):
        for row in rows:
            if len(row) == 4 and row[0].startswith("`warmroute_"):
                name, labels = code(row[0]), set(codes(row[2]))
                if row[1] == "histogram":
                    found |= {f"{name}_bucket": labels | {"le"}, f"{name}_sum": labels, f"{name}_count": labels}
                else:
                    found[name] = labels
    assert len(found) > 50
    return found


@everything
def test_every_metric_exists_with_these_labels(asked: Asked) -> None:
    for use in uses(asked.expr):
        if ":" in use.name:
            assert use.name in recorded(), use.name
            level = set(use.name.partition(":")[0].split("_")) | EVERYWHERE
            assert use.labels <= level, f"{use.name} has no label {use.labels - level}"
        else:
            assert use.name in documented(), use.name
            known = documented()[use.name] | EVERYWHERE
            assert use.labels <= known, f"{use.name} has no label {use.labels - known}"


@everything
def test_every_value_that_is_asked_for_exists(asked: Asked) -> None:
    for use in uses(asked.expr):
        for label, _, text in use.matchers:
            if label in VALUES:
                assert set(text.split("|")) <= VALUES[label], f'{label}="{text}"'
            else:
                assert label in FREE, label


def test_the_variables_of_a_dashboard_are_labels_of_their_metric() -> None:
    variables = [asked for asked in asked_by_boards() if asked.variable_of]
    assert {asked.variable_of for asked in variables} == {"job", "instance", "model", "replica"}
    for asked in variables:
        for use in uses(asked.expr):
            assert asked.variable_of in documented()[use.name] | EVERYWHERE


def test_a_recorded_name_says_which_labels_are_left() -> None:
    """LEVEL:WHAT:OPERATION, the level being the labels of the sum; a quantile's has `le` too."""
    for name, expr in recorded().items():
        level, what, operation = name.split(":")
        assert re.fullmatch(r"(rate|past|p\d\d_)\d+[mhd]", operation), name
        assert what.startswith("warmroute_")
        grouped = [set(re.findall(r"\w+", labels)) - {"le"} for labels in re.findall(r"by \(([^)]*)\)", expr)]
        wanted = {"job", "instance"} if level == "instance" else set(level.split("_"))
        assert all(labels <= wanted for labels in grouped), name
        assert not grouped or wanted in grouped or "group_left" in expr, name


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_every_alert_tells_what_it_means_and_what_to_do(rule: dict) -> None:
    said = rule["annotations"]
    assert set(said) == {"summary", "description", "runbook"}
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert said["description"].endswith(".")
    page, _, anchor = said["runbook"].partition("#")
    assert ROOT / page == GUIDE
    assert anchor in anchors(GUIDE)
    heading = next(line[3:] for line in prose(GUIDE).splitlines() if line.lower() == f"## {anchor}")
    rows = [row for row in table(GUIDE, heading) if code(row[0]) == rule["alert"]]
    assert len(rows) == 1, f"{GUIDE.name} has no row for it below {heading}"
    assert rule["labels"]["severity"] == rows[0][1]


def test_the_guide_has_no_row_of_an_alert_that_is_gone() -> None:
    named = set(re.findall(r"`(Warmroute\w+)`", prose(GUIDE)))
    assert named == {rule["alert"] for rule in alerts()}


def test_what_alerts_and_guide_name_exists() -> None:
    """Commands of ours, admin paths, pages, titles of panels, recorded names."""
    titles = {panel["title"] for board in boards() for panel in board["panels"]} | {b["title"] for b in boards()}
    endpoints = (DOCS / "reference" / "endpoints.md").read_text()
    texts = [prose(GUIDE), *(f"{rule['annotations']['description']}" for rule in alerts())]
    for text in texts:
        for command in re.findall(r"`warmroute ([a-z-]+)", text):
            assert command in flags(), command
        for path in re.findall(r"(?<=/)(?:api/\w+|livez)", text):
            assert f"`/{path}" in endpoints, path
        for page in re.findall(r"\bdocs/[\w./-]+\.md", text):
            assert (ROOT / page).exists(), page
        for title in re.findall(r'"([A-Z][^"{}]+)"', text):
            assert title in titles, title
        for name in re.findall(r"`(\w+:warmroute_\w+:\w+)", text):
            assert name in recorded(), name
