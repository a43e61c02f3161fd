"""`make release`: builds the wheel and the sdist, tries them on every Python, leaves them in dist/ with their sums."""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from release import artefacts, pythons, tree, version
from release.artefacts import Artefacts
from release.tree import Refused
from release.trial import try_on

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument(
        "--rehearsal", action="store_true", help="build what is committed, though it is not ready to be released"
    )
    parser.add_argument("--pythons", nargs="+", metavar="3.N", help="instead of all that pyproject.toml names")
    parser.add_argument("--allow-missing", action="store_true", help="go on without Pythons that are not here")
    parser.add_argument("--tests", default="-n 2", metavar="ARGS", help="for pytest; all tests unless it names some")
    return parser.parse_args()


def say(text: str) -> None:
    """Print a line that is seen among what other programs print."""
    print(f"== {text}", flush=True)


def refuse_if(found: Sequence[str]) -> None:
    """Raise Refused with all that was found, if anything was."""
    if found:
        raise Refused("\n".join(found))


def interpreters(wanted: Sequence[str], allow_missing: bool) -> dict[str, Path]:
    """Version -> interpreter. Raises Refused where one is missing and must not be."""
    found = {name: path for name in wanted if (path := pythons.find(name)) is not None}
    missing = [f"Python {name} is not here (neither on PATH nor of pyenv)" for name in wanted if name not in found]
    for text in missing:
        say(text)
    refuse_if([] if allow_missing and found else missing)
    return found


def look_at_the_tree(rehearsal: bool) -> None:
    """Raises Refused if this is not the state to release."""
    refuse_if(version.disagreements(ROOT))
    unready = [f"not committed: {line}" for line in tree.changes(ROOT)] + version.unfinished(ROOT)
    if not rehearsal:
        refuse_if(unready)
    for text in unready:
        say(f"before a release: {text}")


def build(folder: Path) -> Artefacts:
    """Build what is committed, twice: from git, and from the sdist of that. Raises Refused if anything is wrong."""
    time_s = tree.committed_s(ROOT)
    tree.export(ROOT, folder / "tree")
    built = artefacts.build(folder / "tree", folder / "built", time_s)
    again = artefacts.build(artefacts.unpack(built.sdist, folder / "unpacked"), folder / "again", time_s)
    refuse_if(artefacts.differences(built, again))
    refuse_if(artefacts.missing_from_sdist(built.sdist, tree.committed_files(ROOT)))
    refuse_if(artefacts.faults_of_wheel(built.wheel, version.project(folder / "tree")["version"]))
    return built


def deliver(built: Artefacts) -> None:
    """Put the files into dist/, in place of older ones of that name."""
    DIST.mkdir(exist_ok=True)
    files = [Path(shutil.copy(file, DIST)) for file in built]
    sums = artefacts.write_sums(files, DIST)
    for file in (*files, sums):
        print(f"   {file.relative_to(ROOT)}  {file.stat().st_size:,} bytes")


def release(wanted: argparse.Namespace, folder: Path) -> None:
    """Do all of it, with `folder` for what need not stay. Raises Refused, subprocess.CalledProcessError."""
    look_at_the_tree(wanted.rehearsal)
    found = interpreters(wanted.pythons or version.pythons(ROOT), wanted.allow_missing)
    say("build, and build again from the sdist")
    built = build(folder)
    for name, interpreter in found.items():
        say(f"Python {name}: {interpreter}")
        try_on(interpreter, built, folder / name, shlex.split(wanted.tests))
    say(f"passed on {', '.join(found)}")
    deliver(built)
    if not wanted.rehearsal:
        name = f"v{version.project(ROOT)['version']}"
        say(f"next: git tag -s {name}; upload dist/* (twine upload, or the hosting platform's trusted publishing)")


def main() -> int:
    """Return the exit code; what went wrong is on stderr."""
    wanted = arguments()
    try:
        with tempfile.TemporaryDirectory(prefix="warmroute-release-") as folder:
            release(wanted, Path(folder))
    except Refused as refused:
        print(f"make release: refused\n{refused}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as failed:
        print(f"make release: FAILED: {' '.join(map(str, failed.cmd))}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
