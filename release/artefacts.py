"""The wheel and the sdist: built, built again from the sdist, compared, and looked into."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from packaging.metadata import Metadata

PAGE = "router/app/dashboard/page/index.html"
MADE_FOR_SDIST = {"PKG-INFO"}
HOSTING = (".ci/",)
"""What only the place that hosts the project reads; pyproject.toml leaves it out of the sdist."""


class Artefacts(NamedTuple):
    """The files of one build."""

    wheel: Path
    sdist: Path


def build(tree: Path, into: Path, time_s: int) -> Artefacts:
    """Build both of `tree`. Every file in them gets the time `time_s`, in Unix seconds.

    Raises subprocess.CalledProcessError; what went wrong is on stderr by then.
    """
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(into.resolve())]
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(time_s)}
    subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.DEVNULL, check=True)
    (wheel,), (sdist,) = into.glob("*.whl"), into.glob("*.tar.gz")
    return Artefacts(wheel, sdist)


def unpack(sdist: Path, into: Path) -> Path:
    """Unpack an sdist and return the one folder that is in it."""
    into.mkdir(parents=True, exist_ok=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(into, filter="data")
    return into / sdist.name.removesuffix(".tar.gz")


def differences(one: Artefacts, other: Artefacts) -> list[str]:
    """Which files of two builds do not have the same bytes."""
    pairs = zip(one, other, strict=True)
    return [f"{a.name}: two builds differ" for a, b in pairs if a.read_bytes() != b.read_bytes()]


def missing_from_sdist(sdist: Path, tracked: set[str]) -> list[str]:
    """How an sdist's files differ from those that git has: it has all of them, and adds only its metadata."""
    with tarfile.open(sdist) as archive:
        packed = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    wanted = {name for name in tracked if not name.startswith(HOSTING)}
    missing = [f"{sdist.name} lacks {name}" for name in sorted(wanted - packed)]
    return missing + [f"{sdist.name} has {name}, git has not" for name in sorted(packed - wanted - MADE_FOR_SDIST)]


def faults_of_wheel(wheel: Path, version: str) -> list[str]:
    """What is wrong in a wheel: its metadata by their standard, files that do not belong there or that it lacks."""
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        (file,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = Metadata.from_email(packed.read(file), validate=True)  # raises an ExceptionGroup that says it all
    found = [f"{wheel.name} has {name}" for name in names if not name.startswith(("router/", "warmroute-"))]
    found += [f"{wheel.name} lacks {name}" for name in (PAGE, "router/py.typed") if name not in names]
    if str(metadata.version) != version:
        found.append(f"{wheel.name} says it is {metadata.version}")
    if metadata.description_content_type != "text/markdown" or not metadata.description:
        found.append(f"{wheel.name} has no description in Markdown")
    if not metadata.license_files:
        found.append(f"{wheel.name} has no licence")
    return found


def write_sums(files: Sequence[Path], into: Path) -> Path:
    """Write what `sha256sum --check` reads; return its path."""
    sums = into / "SHA256SUMS"
    sums.write_text("".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files))
    return sums
