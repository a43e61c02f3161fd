"""The settings of a router as a rendered pod gives them, read by the code that `warmroute serve` reads them with."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer.main

from router.app.cli import app
from router.app.settings.sources import Effective, load
from tests.contract.pages import ROOT
from tests.deploy.kubernetes.rendered import Container, Object, Workload, of_kind, overlay

SECRETS = {"admin-token": "a-token-of-some-length", "redis-secret": "a-secret-of-some-length"}
"""What docs/how-to/kubernetes.md makes; other keys are optional."""


def image_variables() -> dict[str, str]:
    """Those of ours that the image sets."""
    dockerfile = (ROOT / "deploy" / "container" / "Dockerfile").read_text()
    return dict(re.findall(r"\b(WARMROUTE_\w+)=(\S+)", dockerfile))


def variables(container: Container) -> dict[str, str]:
    """What a container is started with, of ours."""
    found = image_variables() if container.image.startswith("warmroute:") else {}
    for name, each in container.env.items():
        if "value" in each:
            found[name] = each["value"]
            continue
        reference = each["valueFrom"]["secretKeyRef"]
        if reference["key"] in SECRETS:
            found[name] = SECRETS[reference["key"]]
        else:
            assert reference["optional"], each
    return found


def files(workload: Workload, container: Container) -> dict[str, str]:
    """Path in the container -> text, of all ConfigMaps that it mounts."""
    found: dict[str, str] = {}
    maps = of_kind(overlay(workload.overlay), "ConfigMap")
    for volume, place in container.mounts.items():
        if source := workload.volumes[volume].get("configMap"):
            found |= {f"{place}/{name}": text for name, text in maps[source["name"]]["data"].items()}
    return found


def written(workload: Workload, container: Container, folder: Path) -> list[str]:
    """Write its files below a folder and return its command with their paths there."""
    words = list(container.command)
    for path, text in files(workload, container).items():
        file = folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        words = [str(file) if word == path else word for word in words]
    return words


def flags_of(command: str, words: list[str]) -> dict[str, Any]:
    """Parse the words behind a command of ours; what it does not know fails the test."""
    group = typer.main.get_command(app)
    found = group.commands[command]  # type: ignore[attr-defined]
    with found.make_context(command, list(words)) as context:
        return {name: value for name, value in context.params.items() if value not in (None, ())}


def effective(workload: Workload, container: Container, folder: Path) -> Effective:
    """The settings that a router of this pod starts with."""
    command, *words = written(workload, container, folder)
    flags = flags_of(command, words)
    config = flags.pop("config", None)
    with environment(variables(container)):
        return load(flags, config)


@contextmanager
def environment(given: dict[str, str]) -> Iterator[None]:
    """No variables of ours but these."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.upper().startswith("WARMROUTE_")]:
            patch.delenv(name)
        for name, value in given.items():
            patch.setenv(name, value)
        yield


def probes(container: Container) -> dict[str, Object]:
    kinds = ("startupProbe", "readinessProbe", "livenessProbe")
    return {kind: container.spec[kind] for kind in kinds if kind in container.spec}
