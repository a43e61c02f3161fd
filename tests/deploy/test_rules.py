"""promtool accepts configuration and rules, and every alert fires when it has to and is quiet when it has not."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.shipped import CONFIG, RULE_FILES, RULE_TESTS, alerts, recorded
from tests.deploy.tools import promtool

_NAMED = re.compile(r'alertname="(\w+)"')


@cache
def checks() -> list[tuple[Path, dict[str, Any], dict[str, Any]]]:
    """File, test and check of all unit tests."""
    files = [(file, yaml.safe_load(file.read_text())) for file in RULE_TESTS]
    return [(file, test, check) for file, text in files for test in text["tests"] for check in test["promql_expr_test"]]


def test_the_configuration_and_the_rules_are_valid() -> None:
    outcome = promtool("check", "config", CONFIG)
    assert outcome.returncode == 0, outcome.stderr
    for file in RULE_FILES:
        assert str(file.name) in outcome.stdout


def test_nothing_in_the_rules_is_doubtful() -> None:
    outcome = promtool("check", "rules", "--lint=all", "--lint-fatal", *RULE_FILES)
    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.parametrize("file", RULE_TESTS, ids=lambda file: file.stem)
def test_promtool_runs_the_unit_tests(file: Path) -> None:
    outcome = promtool("test", "rules", file)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_every_alert_is_tested_both_ways() -> None:
    fires: set[str] = set()
    quiet: set[str] = set()
    for _, _, check in checks():
        if named := _NAMED.search(check["expr"]):
            assert check["expr"].startswith("ALERTS{"), check
            (fires if check["exp_samples"] else quiet).add(named[1])
    names = {rule["alert"] for rule in alerts()}
    assert (fires, quiet) == (names, names)


def test_every_recorded_value_is_tested() -> None:
    tested = {name for _, _, check in checks() if check["exp_samples"] for name in recorded() if name in check["expr"]}
    assert tested == set(recorded())


def test_the_texts_of_firing_alerts_render(tmp_path: Path) -> None:
    """promtool prints an alert that it did not expect with its texts as they are sent."""
    rendered = ""
    for number, test in enumerate(_firing()):
        file = tmp_path / f"{number}.yml"
        file.write_text(yaml.safe_dump(test))
        rendered += promtool("test", "rules", file).stderr
    shown = re.findall(r'Labels:\{alertname="(\w+)".*\n\s*Annotations:\{(.*)\}', rendered)
    assert {name for name, _ in shown} == {rule["alert"] for rule in alerts()}
    for name, texts in shown:
        assert "error" not in texts.partition("summary=")[2], (name, texts)
        assert "<no value>" not in texts, (name, texts)
        assert "{{" not in texts, (name, texts)


def _firing() -> list[dict[str, Any]]:
    """For each file one test file that expects no alert where its checks expect one."""
    found: dict[Path, dict[str, Any]] = {}
    for file, test, check in checks():
        named = _NAMED.search(check["expr"])
        if not named or not check["exp_samples"]:
            continue
        rules = [str(rule) for rule in RULE_FILES]
        made = found.setdefault(file, {"rule_files": rules, "evaluation_interval": "1m", "tests": []})
        wrong = {"alertname": named[1], "eval_time": check["eval_time"], "exp_alerts": []}
        kept = {name: test[name] for name in ("name", "interval", "input_series")}
        made["tests"].append(kept | {"alert_rule_test": [wrong]})
    return list(found.values())
