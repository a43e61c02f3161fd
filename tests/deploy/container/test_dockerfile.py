"""The Dockerfile: a linter has no objection, and it says what the rest of the project takes for granted."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from router.app.settings.model import Settings
from router.app.settings.sources import variable_of
from tests.contract.pages import ROOT
from tests.deploy.container import dockerfile
from tests.deploy.container.dockerfile import FILE, allowed, copied, instructions, last_stage, only, path_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_linter_has_no_objection() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    outcome = subprocess.run([hadolint, FILE], capture_output=True, text=True, timeout=30, check=False)
    assert (outcome.returncode, outcome.stdout) == (0, "")
    assert "hadolint ignore" not in FILE.read_text()


def test_the_linter_sees_a_mistake(tmp_path: Path) -> None:
    wrong = tmp_path / "Dockerfile"
    wrong.write_text(FILE.read_text().replace('ENTRYPOINT ["warmroute"]', "ENTRYPOINT warmroute"))
    hadolint = Path(sys.executable).with_name("hadolint")
    outcome = subprocess.run([hadolint, wrong], capture_output=True, text=True, timeout=30, check=False)
    assert "DL3025" in outcome.stdout


def test_signals_reach_the_program_itself() -> None:
    """In the shell form a shell would get them, and not pass them on."""
    stage = last_stage()
    assert only("ENTRYPOINT", stage).listed() == ["warmroute"]
    assert only("CMD", stage).listed() == ["serve"]
    assert not [instruction for instruction in stage if instruction.word == "STOPSIGNAL"], "SIGTERM it is"


def test_it_is_nobodys_program() -> None:
    stage = last_stage()
    assert only("USER", stage).text == "65532:65532"
    words = [instruction.word for instruction in stage]
    assert "RUN" not in words[words.index("USER") :]


def test_health_is_asked_with_the_programs_own_command() -> None:
    options, _, command = only("HEALTHCHECK", last_stage()).text.partition(" CMD ")
    assert command == '["warmroute", "health"]'
    assert "--timeout=5s" in options, "above the deadline of the command, which then says what is wrong"


def test_its_variables_are_settings_and_its_ports_the_defaults() -> None:
    stage = last_stage()
    variables = {name: value for name, value in only("ENV", stage).pairs().items() if name.startswith("WARMROUTE_")}
    assert variables == {"WARMROUTE_HOST": "0.0.0.0"}
    assert set(variables) <= {variable_of(name) for name in Settings.model_fields}
    fields = Settings.model_fields
    assert only("EXPOSE", stage).text.split() == [str(fields[name].default) for name in ("port", "admin_port")]


def test_its_labels_are_the_projects() -> None:
    labels = only("LABEL", last_stage()).pairs()
    said = {name.removeprefix("org.opencontainers.image."): value for name, value in labels.items()}
    assert said == {
        "title": "Warmroute",
        "description": PROJECT["description"],
        "version": PROJECT["version"],
        "licenses": PROJECT["license"],
    }


def test_the_base_and_the_index_can_be_others() -> None:
    arguments = [instruction.text.partition("=")[0] for instruction in instructions() if instruction.word == "ARG"]
    assert arguments == ["BASE", "PIP_INDEX_URL", "PIP_TRUSTED_HOST"]
    assert "ARG" not in [instruction.word for instruction in last_stage()], "an index's password stays out of the image"
    assert {i.text.split()[0] for i in instructions() if i.word == "FROM"} == {"${BASE}"}


@pytest.mark.parametrize("lock", ["build.lock", "requirements.lock"])
def test_what_comes_from_the_index_is_known_by_its_hash(lock: str) -> None:
    text = " && ".join(instruction.text for instruction in instructions() if instruction.word == "RUN")
    installs = [part for part in text.split("&&") if " install " in f"{part} " and "pip" in part]
    (install,) = [part for part in installs if part.rstrip().endswith(f"-r {lock}")]
    assert {"--require-hashes", "--only-binary"} <= set(install.split())
    assert all("--require-hashes" in part or "--no-index" in part for part in installs)


def test_only_what_is_needed_gets_into_the_build() -> None:
    """.dockerignore names what the Dockerfile copies, and no more; all of it exists."""
    assert sorted(allowed()) == sorted(copied())
    assert all(path_of(path).exists() for path in copied())
    assert dockerfile.IGNORE.parent == ROOT
