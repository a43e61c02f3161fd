"""Writes the PrometheusRule: `python -m deploy.kubernetes.generate`, from the project's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

RULES = Path(__file__).parents[1] / "prometheus" / "rules"
FILE = Path(__file__).parent / "components" / "monitoring" / "prometheus-rule.yaml"

HEADING = "# Made from deploy/prometheus/rules by `make manifests`; a test compares them.\n"


def text() -> str:
    """Return the object that holds the groups of all rule files, as YAML."""
    groups = [group for file in sorted(RULES.glob("*.yml")) for group in yaml.safe_load(file.read_text())["groups"]]
    labels = {"app.kubernetes.io/name": "warmroute", "app.kubernetes.io/part-of": "warmroute"}
    rule: dict[str, Any] = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "warmroute", "labels": labels},
        "spec": {"groups": groups},
    }
    return HEADING + yaml.safe_dump(rule, sort_keys=False, allow_unicode=True, width=120)


def main() -> None:
    """Write it."""
    FILE.write_text(text())


if __name__ == "__main__":
    main()
