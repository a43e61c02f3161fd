"""The wheel in a fresh environment, with the sources away: it starts, it has all it needs, and the tests pass on it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from release.artefacts import Artefacts, unpack

EVERYTHING_IMPORTS = """
import importlib, pathlib, pkgutil, sys
import router
assert pathlib.Path(router.__file__).is_relative_to(sys.prefix), router.__file__
for module in pkgutil.walk_packages(router.__path__, "router."):
    if module.name == "router.__main__":
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as missing:
        if not (missing.name or "").startswith("opentelemetry"):
            raise
"""
"""Without the extras; what only tests need is not there either, so nothing of it can be needed."""

PIP = (sys.executable, "-m", "pip")
"""This environment's: it installs into others, so none of them needs its own."""


class Environment:
    """A virtual environment."""

    def __init__(self, folder: Path, python: Path) -> None:
        """Make it. Raises subprocess.CalledProcessError."""
        self.bin = folder / "bin"
        subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)

    @property
    def python(self) -> Path:
        return self.bin / "python"

    def install(self, *wanted: str) -> None:
        """Install packages, by uv where it is there, since it takes seconds for what takes pip a minute."""
        uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
        python = ["--python", str(self.python)]
        installer = [*PIP, *python, "install"] if uv is None else [uv, "pip", "install", *python]
        subprocess.run([*installer, "--quiet", *wanted], check=True)

    def run(self, *command: str | Path, cwd: Path) -> None:
        """Run a command in it; no setting and no path of whoever releases reaches it."""
        foreign = ("WARMROUTE_", "PYTHON", "VIRTUAL_ENV")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        path = f"{self.bin}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        subprocess.run([*command], cwd=cwd, env=clean | {"PATH": path}, check=True)


def starts(environment: Environment, elsewhere: Path) -> None:
    """Try the commands that need nothing, in a folder that has nothing. Raises subprocess.CalledProcessError."""
    environment.run("warmroute", "--version", cwd=elsewhere)
    environment.run("warmroute", "check-config", "--replica", "http://127.0.0.1:8000", cwd=elsewhere)
    environment.run(environment.python, "-c", EVERYTHING_IMPORTS, cwd=elsewhere)


def without_sources(sdist: Path, into: Path) -> Path:
    """Unpack an sdist, take the package out, and return the folder: `import router` there is the installed one."""
    tree = unpack(sdist, into)
    shutil.rmtree(tree / "router")
    return tree


def try_on(python: Path, built: Artefacts, folder: Path, tests: Sequence[str]) -> None:
    """Install the wheel, see it start, then run `tests` (pytest's arguments) of the sdist on it.

    `folder` is filled. Raises subprocess.CalledProcessError.
    """
    tree = without_sources(built.sdist, folder)
    environment = Environment(tree / ".venv", python)
    environment.install(str(built.wheel))
    starts(environment, folder)
    environment.install(f"{built.wheel}[dev]")
    (tree / ".venv" / ".installed").touch()  # for make: it would install what is here, and not the wheel
    environment.run("make", "--silent", "redis-server", f"PIP={' '.join(PIP)}", cwd=tree)
    environment.run(environment.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, cwd=tree)
