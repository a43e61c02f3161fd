"""What deploy/prometheus and deploy/grafana hold: rules, panels, variables, and the names that their PromQL uses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.contract.pages import ROOT

PROMETHEUS = ROOT / "deploy" / "prometheus"
GRAFANA = ROOT / "deploy" / "grafana"
CONFIG = PROMETHEUS / "prometheus.yml"
RULE_FILES = sorted((PROMETHEUS / "rules").glob("*.yml"))
RULE_TESTS = sorted((PROMETHEUS / "tests").glob("*.yml"))
DASHBOARDS = sorted((GRAFANA / "dashboards").glob("*.json"))

_METRIC = re.compile(
    r"(?<![\w:])((?:\w+:)?(?:warmroute|process)_\w+(?::\w+)?|up)\b(?:\s*\{((?:[^{}\"]|\"[^\"]*\")*)\})?"
)
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
_GROUPED = re.compile(r"by \(([^)]*)\) \((?:\w+\()*((?:\w+:)?(?:warmroute|process)_\w+(?::\w+)?)")


@dataclass(frozen=True)
class Asked:
    """One expression, and where it stands."""

    where: str
    expr: str
    instant: bool = True
    variable_of: str = ""
    """The label whose values a variable of a dashboard lists; the expression is then a selector."""

    def __str__(self) -> str:
        return self.where


@dataclass(frozen=True)
class Use:
    """A metric as an expression uses it: its name, the labels that it is filtered or grouped by, their values."""

    name: str
    labels: frozenset[str]
    matchers: tuple[tuple[str, str, str], ...] = ()


@cache
def rules() -> list[dict[str, Any]]:
    """All rules, as the files have them."""
    files = [yaml.safe_load(file.read_text()) for file in RULE_FILES]
    return [rule for file in files for group in file["groups"] for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def recorded() -> dict[str, str]:
    """Recorded name -> expression."""
    found = {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}
    assert len(found) == len(rules()) - len(alerts()), "a name is recorded twice"
    return found


@cache
def boards() -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in DASHBOARDS]


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    """Its panels without the headings of rows."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def asked_by_rules() -> list[Asked]:
    return [Asked(rule.get("record") or rule["alert"], rule["expr"]) for rule in rules()]


def asked_by_boards() -> Iterator[Asked]:
    """Every query of every panel and variable, as Prometheus gets it when everything is selected."""
    for board in boards():
        for panel in panels(board):
            for target in panel["targets"]:
                where = f"{board['uid']}: {panel['title']} {target['refId']}"
                yield Asked(where, expanded(target["expr"]), target["instant"])
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
                assert found, variable
                where = f"{board['uid']}: variable {variable['name']}"
                yield Asked(where, expanded(found[1]), variable_of=found[2])


def expanded(expr: str) -> str:
    """Put in what Grafana would put in for its variables."""
    values = {"$__rate_interval": "1m", "$__range": "1h"} | dict.fromkeys(
        ("$job", "$router", "$model", "$replica"), ".*"
    )
    for name, value in values.items():
        expr = expr.replace(name, value)
    assert "$" not in expr, expr
    return expr


def uses(expr: str) -> list[Use]:
    """The metrics in an expression. It is no parser of PromQL: it finds what our expressions have."""
    found = []
    for name, inner in _METRIC.findall(expr):
        matchers = tuple(_MATCHER.findall(inner))
        found.append(Use(name, frozenset(label for label, *_ in matchers), matchers))
    for labels, name in _GROUPED.findall(expr):
        found.append(Use(name, frozenset(re.findall(r"\w+", labels))))
    assert found, f"no metric found in {expr}"
    return found


def scraped_by(targets: list[str], every: str) -> dict[str, Any]:
    """The shipped configuration with other targets, and times for a test."""
    config: dict[str, Any] = yaml.safe_load(CONFIG.read_text())
    times = {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every}
    (job,) = config["scrape_configs"]
    files = [str(Path(CONFIG.parent / pattern)) for pattern in config["rule_files"]]
    return config | {
        "global": config["global"] | times,
        "rule_files": files,
        "scrape_configs": [job | {"static_configs": [{"targets": targets}]}],
    }
