"""`warmroute doctor` as a user meets it: addresses, keys from the environment, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from router.app.demo.processes import router, simulated_fleet
from router.app.doctor.command import base_url, target_of
from router.app.settings.sources import ConfigError
from tests.app.doctor.ready import until_known

PORTS = ["--port", "0", "--admin-port", "0"]


def doctor(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {
        name: value for name, value in os.environ.items() if not name.upper().startswith(("WARMROUTE_", "OPENAI_"))
    }
    return subprocess.run(
        [sys.executable, "-m", "router", "doctor", *arguments],
        env=clean | {"COLUMNS": "80"} | variables,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("http://gpu-1:8000", "http://gpu-1:8000"),
        ("http://gpu-1:8000/", "http://gpu-1:8000"),
        ("https://chat.example/v1", "https://chat.example"),
        ("https://chat.example/llm/v1/", "https://chat.example/llm"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_addresses_as_clients_have_them(given: str, base: str) -> None:
    assert base_url(given, "--router") == base


@pytest.mark.parametrize(
    "given", ["gpu-1:8000", "ftp://gpu-1", "http://", "http://gpu-1:x", "http://a:80?x=1", "http://user:hunter2@a:80"]
)
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match="--router") as refused:
        base_url(given, "--router")
    assert "hunter2" not in str(refused.value)


def test_keys_come_from_the_environment() -> None:
    variables = {"OPENAI_API_KEY": "c", "WARMROUTE_ADMIN_TOKEN": "a", "WARMROUTE_ENGINE_API_KEY": "e"}
    target = target_of("http://r:1", "http://a:1", ["http://x:1", "http://x:1/"], None, variables)
    assert (target.client_key, target.admin_token, target.engine_key) == ("c", "a", "e")
    assert target.replicas == ("http://x:1",)
    assert target_of("http://r:1", "http://a:1", [], None, {"OPENAI_API_KEY": ""}).client_key is None


@pytest.mark.parametrize(
    "arguments", [["--router", "http://127.0.0.1:1"], ["--admin", "nonsense"], ["--no-such-flag"], ["extra"]]
)
def test_what_can_not_be_run_is_one_line_and_exit_code_2(arguments: list[str]) -> None:
    outcome = doctor(*arguments)
    assert outcome.returncode == 2
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("warmroute: ")
    assert outcome.stderr.count("\n") == 1


def test_exit_codes_on_a_running_fleet() -> None:
    with simulated_fleet(2, ["--time-scale", "20"]) as fleet:
        with router(fleet, PORTS) as urls:
            until_known(urls.clients, 2)
            sound = doctor("--router", urls.clients, "--admin", urls.admin, "--json")
            assert sound.returncode == 0, sound
            told = json.loads(sound.stdout)
            assert told["sound"] is True
            assert told["counts"]["problem"] == 0
            lines = doctor("--router", urls.clients, "--admin", urls.admin, OPENAI_API_KEY="sk-hunter2")
            assert lines.returncode == 0
            assert "full blocks of 16, on the same replica (r-" in lines.stdout
            assert "hunter2" not in lines.stdout + lines.stderr
        with router(fleet, [*PORTS, "--policy", "round-robin"]) as urls:
            until_known(urls.clients, 2)
            assert doctor("--router", urls.clients, "--admin", urls.admin).returncode == 1
