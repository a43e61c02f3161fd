"""What deploy/kubernetes renders to, and the questions that tests ask of it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.contract.pages import ROOT
from tests.rig.programs import program

Object = dict[str, Any]

PLACE = ROOT / "deploy" / "kubernetes"
REQUIRED = "REQUIRE_KUBECTL"
"""Where this variable is set, a missing kubectl is a failure."""
FETCHED = "tests/deploy/kubernetes/fetch_kubectl.py puts one into .venv"

OVERLAYS = ("service", "try", "sidecar", "beside-vllm")
ALL = (*(f"overlays/{name}" for name in OVERLAYS), "base", "rights", "rights/pods", "engines/simulated", "engines/vllm")
"""Every folder that can be applied as it is."""

WORKLOADS = {"Deployment", "StatefulSet", "DaemonSet", "Job", "ReplicaSet"}


def kubectl() -> str:
    """The path of kubectl; without it the test is skipped."""
    return program("kubectl", FETCHED, REQUIRED)


def kustomize(folder: Path) -> list[Object]:
    """The objects that a folder renders to. What kubectl warns of fails the test."""
    done = subprocess.run([kubectl(), "kustomize", folder], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


@cache
def rendered(name: str) -> tuple[Object, ...]:
    """The same for one of ours."""
    return tuple(kustomize(PLACE / name))


def overlay(name: str) -> tuple[Object, ...]:
    return rendered(f"overlays/{name}")


def of_kind(objects: tuple[Object, ...], kind: str) -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


@dataclass(frozen=True)
class Container:
    """A container of a pod; a sidecar is one of its initContainers that goes on."""

    spec: Object
    sidecar: bool

    @property
    def name(self) -> str:
        name: str = self.spec["name"]
        return name

    @property
    def image(self) -> str:
        image: str = self.spec["image"]
        return image

    @property
    def command(self) -> list[str]:
        """Its words behind the image's entry point, or those in place of it."""
        return [*self.spec.get("command", ()), *self.spec.get("args", ())]

    @property
    def is_router(self) -> bool:
        return self.image.startswith("warmroute:") and self.spec.get("args", [""])[0] == "serve"

    @property
    def env(self) -> dict[str, Object]:
        found = {each["name"]: each for each in self.spec.get("env", ())}
        assert len(found) == len(self.spec.get("env", ())), "a variable is given twice"
        return found

    @property
    def ports(self) -> dict[str, int]:
        return {each["name"]: each["containerPort"] for each in self.spec.get("ports", ())}

    @property
    def mounts(self) -> dict[str, str]:
        """Volume -> path."""
        return {each["name"]: each["mountPath"] for each in self.spec.get("volumeMounts", ())}


@dataclass(frozen=True)
class Workload:
    """What makes pods, and the pod that it makes."""

    of: Object
    overlay: str

    def __str__(self) -> str:
        return f"{self.overlay}-{self.name}"

    @property
    def name(self) -> str:
        name: str = self.of["metadata"]["name"]
        return name

    @property
    def namespace(self) -> str:
        namespace: str = self.of["metadata"].get("namespace", "default")
        return namespace

    @property
    def labels(self) -> dict[str, str]:
        labels: dict[str, str] = self.of["spec"]["template"]["metadata"]["labels"]
        return labels

    @property
    def pod(self) -> Object:
        pod: Object = self.of["spec"]["template"]["spec"]
        return pod

    @property
    def containers(self) -> list[Container]:
        sidecars = [Container(each, True) for each in self.pod.get("initContainers", ())]
        assert all(each.spec.get("restartPolicy") == "Always" for each in sidecars)
        return [*sidecars, *(Container(each, False) for each in self.pod["containers"])]

    @property
    def routers(self) -> list[Container]:
        return [each for each in self.containers if each.is_router]

    @property
    def ports(self) -> dict[str, int]:
        """Of all its containers, by name."""
        found: dict[str, int] = {}
        for container in self.containers:
            assert not found.keys() & container.ports.keys()
            found |= container.ports
        return found

    @property
    def volumes(self) -> dict[str, Object]:
        return {each["name"]: each for each in self.pod.get("volumes", ())}


def workloads(name: str) -> list[Workload]:
    """Of an overlay."""
    return [Workload(each, name) for each in overlay(name) if each["kind"] in WORKLOADS]


def all_workloads() -> Iterator[Workload]:
    for name in OVERLAYS:
        yield from workloads(name)


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    """Whether matchLabels select what has these labels."""
    return selector.items() <= labels.items()
