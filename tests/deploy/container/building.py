"""The image, built by buildah from the Dockerfile as it is, on a Debian laid out as the official Python image is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.contract.pages import ROOT
from tests.deploy.container.dockerfile import FILE

REQUIRED = "REQUIRE_IMAGE"
"""Where this variable is set (`make test-image` does), the image is built, which takes some minutes."""

PROGRAMS = ("debootstrap", "buildah", "bwrap", "setpriv")
BASE, IMAGE = "python:3.13-slim-trixie", "warmroute:test"
PACKAGES = "python3,python3-venv,python3-pip,ca-certificates"
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
STEP_S = 600.0


def demand() -> None:
    """Skip where nobody has asked for it; fail where what it takes is missing."""
    if not os.environ.get(REQUIRED):
        pytest.skip("building the image takes minutes: make test-image")
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.fail(f"building the image takes root and {', '.join(PROGRAMS)}; missing: {missing or 'root'}")


@dataclass(frozen=True)
class Image:
    tree: Path
    """Its files, unpacked."""
    config: dict[str, Any]

    @property
    def variables(self) -> dict[str, str]:
        return dict(entry.split("=", 1) for entry in self.config["Env"])


class Builder:
    """buildah with a store of its own: no daemon, no overlay file system, no container engine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, *arguments: str | Path, context: Path = ROOT) -> str:
        places = ["--root", self._folder / "store", "--runroot", self._folder / "run", "--storage-driver", "vfs"]
        variables = os.environ | {"BUILDAH_ISOLATION": "chroot"}
        return run(["buildah", *places, *arguments], cwd=context, env=variables)

    def base(self) -> None:
        """Import a Debian under the name of the base image."""
        root = self._folder / "base"
        run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "trixie", root])
        lay_out(root)
        run(["tar", "-C", root, "-cf", self._folder / "base.tar", "."])
        shutil.rmtree(root)
        path = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
        (self._folder / "Base").write_text(f"FROM scratch\nADD base.tar /\nENV PATH={path} LANG=C.UTF-8\n")
        self("bud", "-f", self._folder / "Base", "-t", BASE, self._folder)

    def build(self) -> Image:
        """Build the image from the checkout, and unpack it."""
        self("bud", "--pull-never", "--format", "docker", "-f", FILE, "-t", IMAGE, ROOT)
        inspected = json.loads(self("inspect", "--type", "image", IMAGE))
        container = self("from", "--pull-never", IMAGE).strip()
        tree = self._folder / "tree"
        run(["cp", "-a", self("mount", container).strip(), tree])
        return Image(tree, inspected["Docker"]["config"])


def lay_out(root: Path) -> None:
    """As the official image is: `python`, pip below /usr/local, no bytecode of the standard library."""
    local = root / "usr/local/lib/python3.13/dist-packages"
    local.mkdir(parents=True, exist_ok=True)
    for found in (root / "usr/lib/python3/dist-packages").glob("pip*"):
        found.rename(local / found.name)
    for found in (root / "usr/bin").glob("pip*"):
        found.rename(root / "usr/local/bin" / found.name)
    (root / "usr/local/bin/python").symlink_to("/usr/bin/python3.13")
    for folder in (root / "usr/lib/python3.13").rglob("__pycache__"):
        shutil.rmtree(folder)
    # The authorities of this machine: the package index may be behind one of its own.
    if AUTHORITIES.exists():
        shutil.copyfile(AUTHORITIES, root / AUTHORITIES.relative_to("/"))


def run(command: list[Any], cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """What a command prints; where it fails, what it has said fails the test."""
    outcome = subprocess.run(
        list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, timeout=STEP_S, check=False
    )
    assert outcome.returncode == 0, f"{command[0]}: {outcome.stdout[-2000:]}\n{outcome.stderr[-4000:]}"
    return outcome.stdout
