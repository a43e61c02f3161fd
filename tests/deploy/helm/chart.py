"""What the chart renders to."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from deploy.helm.generate import CHART
from tests.deploy.kubernetes.rendered import FETCHED, REQUIRED, Object
from tests.rig.programs import program

NAMESPACE = "llm"
SECRET = {"existingSecret": "warmroute"}
"""The one value that has no default."""


def helm(*arguments: str | Path, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    """Run it with values; without it the test is skipped."""
    more = ["--values=-"] if values is not None else []
    # Nothing of whoever runs the tests: no plugins, no cluster.
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "KUBECONFIG": os.devnull}
    return subprocess.run(
        [program("helm", FETCHED, REQUIRED), *arguments, *more],
        input=json.dumps(values), capture_output=True, text=True, timeout=50, check=False, env=env,
    )  # fmt: skip


def template(values: dict[str, Any], release: str = "warmroute") -> tuple[Object, ...]:
    """The objects for these values. They are rendered once."""
    return _template(json.dumps(SECRET | values), release)


@cache
def _template(values: str, release: str) -> tuple[Object, ...]:
    done = helm("template", release, CHART, f"--namespace={NAMESPACE}", values=json.loads(values))
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return tuple(each for each in yaml.safe_load_all(done.stdout) if each)


def refusal(values: dict[str, Any]) -> str:
    """What Helm says to values that it does not take."""
    done = helm("template", "warmroute", CHART, values=values)
    assert done.returncode != 0, "these values are taken"
    return done.stderr


def notes(values: dict[str, Any]) -> str:
    """What is printed after an install."""
    done = helm(
        "install", "warmroute", CHART, f"--namespace={NAMESPACE}", "--dry-run=client", values=SECRET | values
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("\nNOTES:\n")[2]
