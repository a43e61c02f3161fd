"""Which services start: the simulated engines by default, the GPU's in place of them with --profile gpu."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import Any

import pytest

from tests.contract.pages import DOCS, ROOT
from tests.deploy.compose.project import ENV_FILE, FILE, default_profiles, services
from tests.rig.programs import absent

COMMON = {"router-1", "router-2", "valkey", "prometheus", "grafana"}
VLLM = {"vllm-1", "vllm-2"}
REQUIRED = "REQUIRE_COMPOSE"
"""Where this variable is set, a missing Docker Compose is a failure."""


def test_without_a_profile_the_simulated_engines_start() -> None:
    """Compose takes .env's where no flag and no variable names any."""
    assert default_profiles() == ["sim"]
    assert set(services(*default_profiles())) == COMMON | {"sim"}
    assert services("sim")["sim"].replicas == 3


def test_with_the_profile_gpu_no_simulated_engine_starts() -> None:
    """A flag replaces what .env says."""
    assert set(services("gpu")) == COMMON | VLLM


def test_routers_are_the_same_under_either_profile() -> None:
    for name in COMMON:
        assert services("sim")[name].raw == services("gpu")[name].raw


def test_nothing_waits_for_what_another_profile_starts() -> None:
    for profile in ("sim", "gpu"):
        started = services(profile)
        for service in started.values():
            assert set(service.waits_for) <= set(started)


def test_each_vllm_has_a_gpu_of_its_own() -> None:
    devices = [_devices(name) for name in sorted(VLLM)]
    assert devices == [{"driver": "nvidia", "device_ids": [number], "capabilities": ["gpu"]} for number in ("0", "1")]


def test_vllm_has_flags_that_our_page_knows_and_time_to_stop() -> None:
    page = (DOCS / "how-to" / "vllm-flags.md").read_text()
    for name in VLLM:
        service = services("gpu")[name]
        model, *flags = service.command
        assert model == "Qwen/Qwen3-8B"
        for flag in flags:
            word = flag.partition("=")[0]
            assert word == "--port" or re.search(rf"`{word}[ `]", page), word
        (shutdown,) = [flag for flag in flags if flag.startswith("--shutdown-timeout=")]
        assert service.stop_grace_s > int(shutdown.partition("=")[2])


def test_offloaded_blocks_have_room_in_shared_memory() -> None:
    for name in VLLM:
        service = services("gpu")[name]
        (size,) = [flag for flag in service.command if flag.startswith("--kv-offloading-size=")]
        found = re.fullmatch(r"(\d+)g", service.raw["shm_size"])
        assert found
        assert int(found[1]) > int(size.partition("=")[2])


def test_env_holds_nothing_else() -> None:
    """It is tracked: a secret in it would be published."""
    lines = [line for line in ENV_FILE.read_text().splitlines() if not line.startswith("#")]
    assert lines == ["COMPOSE_PROFILES=sim"]


@pytest.mark.parametrize("arguments, environment, expected", [
    ([], {}, COMMON | {"sim"}),
    (["--profile", "gpu"], {}, COMMON | VLLM),
    ([], {"COMPOSE_PROFILES": "gpu"}, COMMON | VLLM),
    (["--profile", "sim", "--profile", "gpu"], {}, COMMON | VLLM | {"sim"}),
])  # fmt: skip
def test_docker_compose_reads_it_so(arguments: list[str], environment: dict[str, str], expected: set[str]) -> None:
    said = _config(*arguments, **environment)
    assert set(said["services"]) == expected


def test_docker_compose_puts_in_the_same_commands_and_environment() -> None:
    for profile in ("sim", "gpu"):
        said = _config("--profile", profile)["services"]
        for name, service in services(profile).items():
            assert said[name].get("command") == (service.command or None)
            assert said[name].get("environment", {}) == service.environment
            assert said[name]["stop_grace_period"] in (f"{service.stop_grace_s}s", _minutes(service.stop_grace_s))


def _config(*arguments: str, **environment: str) -> Any:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("COMPOSE_", "WARMROUTE_"))}
    command = [*_compose(), "--file", str(FILE), *arguments, "config", "--format", "json"]
    ran = subprocess.run(
        command, env=clean | environment, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return json.loads(ran.stdout)


def _compose() -> list[str]:
    """Docker Compose, as docker's plugin or as a program; it needs no engine to read a file."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]):
            said = subprocess.run([*command, "version", "--short"], capture_output=True, text=True, check=False).stdout
            if re.match(r"v?([2-9]|\d\d)\.", said):
                return command
    return absent("Docker Compose 2 or later is not installed", REQUIRED)


def _minutes(time_s: int) -> str:
    return f"{time_s // 60}m{time_s % 60}s"


def _devices(name: str) -> dict[str, Any]:
    (device,) = services("gpu")[name].raw["deploy"]["resources"]["reservations"]["devices"]
    found: dict[str, Any] = device
    return found
