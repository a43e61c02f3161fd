"""A release's wheel and sdist, built of the files that are here: complete, the same bytes each time, at work alone.

`make release` does the same with what is committed, on every Python, and runs all tests.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from release import artefacts, pythons, trial, version
from release.artefacts import Artefacts
from tests.contract.pages import ROOT

TIME_S = 1_800_000_000
SOME_TESTS = ("tests/core/test_ledger.py", "tests/app/test_dashboard_colours.py")


def files_here() -> set[str]:
    """What would be committed if all were: others may be at work while this runs, and leave files half written."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}


def write_version(tree: Path, *, project: str, newest: str, fragments: tuple[str, ...] = ()) -> Path:
    (tree / "pyproject.toml").write_text(f'[project]\nversion = "{project}"\n')
    (tree / "CHANGELOG.md").write_text(f"# Changelog\n\n## {newest}\n\n- x\n\n## [0.0.1] - 2020-01-01\n")
    (tree / "changelog.d").mkdir()
    for name in ("README.md", *fragments):
        (tree / "changelog.d" / name).touch()
    return tree


def test_the_version_is_the_newest_entry(tmp_path: Path) -> None:
    tree = write_version(tmp_path, project="0.3.0", newest="[0.2.0] - 2026-12-01")
    (said,) = version.disagreements(tree)
    assert "0.3.0" in said
    assert "0.2.0" in said


def test_a_release_has_a_date_and_no_fragments_left(tmp_path: Path) -> None:
    tree = write_version(tmp_path, project="0.2.0", newest="[0.2.0] - unreleased", fragments=("+x.added.md",))
    assert version.disagreements(tree) == []
    assert ["unreleased" in text for text in version.unfinished(tree)] == [True, False]
    assert ["+x.added.md" in text for text in version.unfinished(tree)] == [False, True]


def test_a_finished_tree_is_finished(tmp_path: Path) -> None:
    tree = write_version(tmp_path, project="0.2.0", newest="[0.2.0] - 2026-12-01")
    assert version.disagreements(tree) + version.unfinished(tree) == []


def test_the_oldest_python_that_is_tried_is_the_oldest_that_is_allowed() -> None:
    oldest = version.pythons(ROOT)[0]
    assert version.project(ROOT)["requires-python"] == f">={oldest}"


def test_pythons_are_found_by_their_version() -> None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert pythons.find(here) == Path(sys.executable)
    assert pythons.find("3.99") is None


@pytest.fixture(scope="module")
def files() -> set[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("builds what git has; this is an unpacked sdist")
    return files_here()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("release")


@pytest.fixture(scope="module")
def built(files: set[str], folder: Path) -> Artefacts:
    for name in files:
        (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / "tree" / name)
    return artefacts.build(folder / "tree", folder / "built", TIME_S)


def test_the_wheel_has_all_of_the_package_and_its_metadata_are_right(built: Artefacts, files: set[str]) -> None:
    assert artefacts.faults_of_wheel(built.wheel, version.project(ROOT)["version"]) == []
    (said,) = artefacts.faults_of_wheel(built.wheel, "0.0.0")
    assert "says it is" in said
    with zipfile.ZipFile(built.wheel) as packed:
        assert {name for name in packed.namelist() if name.startswith("router/")} == {
            name for name in files if name.startswith("router/")
        }


def test_the_sdist_has_all_that_git_has(built: Artefacts, files: set[str]) -> None:
    assert artefacts.missing_from_sdist(built.sdist, files) == []
    lacks, has = artefacts.missing_from_sdist(built.sdist, (files | {"tests/another.py"}) - {"Makefile"})
    assert "lacks tests/another.py" in lacks
    assert "has Makefile" in has


def test_what_the_sdist_builds_has_the_same_bytes(built: Artefacts, folder: Path) -> None:
    unpacked = artefacts.unpack(built.sdist, folder / "unpacked")
    again = artefacts.build(unpacked, folder / "again", TIME_S)
    assert artefacts.differences(built, again) == []
    (unpacked / "router" / "__init__.py").write_text("")
    changed = artefacts.build(unpacked, folder / "changed", TIME_S)
    assert len(artefacts.differences(built, changed)) == 2


def test_the_sums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    sums = artefacts.write_sums([tmp_path / "a"], tmp_path)
    assert sums.read_text() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a\n"


def test_the_wheel_works_with_the_sources_away(built: Artefacts, folder: Path) -> None:
    """In an environment that has the packages of this one, but not its `warmroute`."""
    environment = trial.Environment(folder / "environment", Path(sys.executable))
    packages = environment.bin.parent / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    environment.install("--no-deps", str(built.wheel))
    (packages / "theirs.pth").write_text(f"{sysconfig.get_path('purelib')}\n")  # .pth files that lie there are not read
    trial.starts(environment, folder)
    tree = trial.without_sources(built.sdist, folder / "trial")
    assert not (tree / "router").exists()
    environment.run(environment.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *SOME_TESTS, cwd=tree)
