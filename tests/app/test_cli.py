"""The command line as a user meets it: a process with arguments, an environment, two outputs and an exit code."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from router import __version__
from router.app.settings.model import Settings
from router.app.settings.sources import flag_of


def warmroute(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.upper().startswith("WARMROUTE_")}
    return subprocess.run(
        [sys.executable, "-m", "router", *arguments],
        env=clean | {"COLUMNS": "80"} | variables,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def assert_refused(outcome: subprocess.CompletedProcess[str], *says: str) -> None:
    """One line on stderr that begins with our name, nothing on stdout, exit code 2."""
    assert outcome.returncode == 2, outcome
    assert outcome.stdout == ""
    assert re.fullmatch(r"warmroute: [^\n]+\n", outcome.stderr), outcome.stderr
    for words in says:
        assert words in outcome.stderr


def test_version() -> None:
    outcome = warmroute("--version")
    assert (outcome.returncode, outcome.stdout) == (0, f"warmroute {__version__}\n")


def test_without_a_command_the_help_is_shown() -> None:
    outcome = warmroute()
    assert outcome.returncode == 2
    for command in ("serve", "check-config", "sim", "demo"):
        assert command in outcome.stdout
    assert "settings-reference" not in outcome.stdout


@pytest.mark.parametrize("command", ["serve", "check-config"])
def test_help_lists_every_setting_in_full_at_80_columns(command: str) -> None:
    outcome = warmroute(command, "--help")
    assert outcome.returncode == 0
    assert max(map(len, outcome.stdout.splitlines())) <= 80
    for name in Settings.model_fields:
        assert re.search(rf"{flag_of(name)}\s", outcome.stdout), name


def test_help_loads_no_server() -> None:
    code = "import sys, router.app.cli; print([m for m in ('uvicorn', 'fastapi', 'httpx') if m in sys.modules])"
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert outcome.stdout.strip() == "[]"


@pytest.mark.parametrize("command", ["serve", "check-config"])
@pytest.mark.parametrize(
    ("arguments", "variables", "says"),
    [
        (["--repilca", "x"], {}, ["No such option: --repilca", "--replica"]),
        (["--port"], {}, ["--port", "requires an argument"]),
        (["extra"], {}, ["extra"]),
        (["--port", "99999"], {}, ["port (flag --port)", "'99999'"]),
        (["--replica", "127.0.0.1:8000"], {}, ["replica (flag --replica)", "http://host:port"]),
        (["--replica", "http://a:1", "--replica", "http://A:1/"], {}, ["http://a:1 is given twice"]),
        (["--policy", "round_robin"], {}, ["policy (flag --policy)", "did you mean round-robin?"]),
        (["--config", "/no/such.toml"], {}, ["/no/such.toml does not exist"]),
        ([], {"WARMROUTE_CONFIG": "/no/such.toml"}, ["/no/such.toml does not exist"]),
        ([], {"WARMROUTE_REPLICAS": "http://a:1"}, ["WARMROUTE_REPLICAS", "did you mean WARMROUTE_REPLICA?"]),
        ([], {"WARMROUTE_LOG_LEVEL": "loud"}, ["log_level (environment WARMROUTE_LOG_LEVEL)"]),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    command: str, arguments: list[str], variables: dict[str, str], says: list[str]
) -> None:
    assert_refused(warmroute(command, *arguments, **variables), *says)


def test_a_mistake_in_the_file_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    config = tmp_path / "warm.toml"
    config.write_text("prot = 8080\n")
    assert_refused(warmroute("check-config", "--config", str(config)), str(config), "'prot'", "did you mean port?")


def test_an_unknown_command_is_answered_with_the_nearest() -> None:
    assert_refused(warmroute("sevre"), "sevre", "serve")


def test_check_config_prints_each_value_with_its_source(tmp_path: Path) -> None:
    config = tmp_path / "warm.toml"
    config.write_text('replica = ["http://a:8000", "http://b:8000"]\nport = 1\n')
    outcome = warmroute(
        "check-config", "--config", str(config), "--no-log-requests", "--max-body-bytes", "1MiB", WARMROUTE_PORT="2"
    )
    assert (outcome.returncode, outcome.stderr) == (0, "")
    lines = dict(line.split(maxsplit=1) for line in outcome.stdout.splitlines())
    assert list(lines) == list(Settings.model_fields)
    assert lines["replica"].split(maxsplit=2) == ["http://a:8000,http://b:8000", "reload", f"file {config}"]
    assert lines["port"].split() == ["2", "restart", "environment"]
    assert lines["log_requests"].split() == ["off", "restart", "flag"]
    assert lines["max_body_bytes"].split() == ["1MiB", "reload", "flag"]
    assert lines["host"].split() == ["127.0.0.1", "restart", "default"]


def test_check_config_columns_are_aligned() -> None:
    lines = warmroute("check-config", "--replica", "http://a:8000").stdout.splitlines()
    assert len({line.rindex("  ") for line in lines}) == 1


def test_check_config_prints_json() -> None:
    outcome = warmroute("check-config", "--json", "--replica", "http://a", "--port", "0", WARMROUTE_MAX_RETRIES="0")
    values = json.loads(outcome.stdout)
    assert list(values) == list(Settings.model_fields)
    assert values["replica"] == {"value": ["http://a:80"], "changed_by": "reload", "source": "flag"}
    assert values["port"] == {"value": 0, "changed_by": "restart", "source": "flag"}
    assert values["max_retries"] == {"value": 0, "changed_by": "reload", "source": "environment"}
    assert values["log_requests"] == {"value": True, "changed_by": "restart", "source": "default"}
    assert values["engine_api_key"] == {"value": None, "changed_by": "reload", "source": "default"}


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_secrets_are_masked(arguments: list[str]) -> None:
    outcome = warmroute("check-config", *arguments, WARMROUTE_ENGINE_API_KEY="hunter2")
    assert "hunter2" not in outcome.stdout + outcome.stderr
    assert "***" in outcome.stdout


def test_the_installed_command_is_the_module() -> None:
    command = Path(sys.executable).with_name("warmroute")
    outcome = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=30, check=False)
    assert outcome.stdout == warmroute("--version").stdout


@pytest.mark.parametrize("flag", ["--port", "--admin-port"])
def test_a_port_in_use_is_one_line_and_exit_code_2(flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        other = "--admin-port" if flag == "--port" else "--port"
        assert_refused(warmroute("serve", flag, port, other, "0"), port)


def test_the_simulator_says_when_its_port_is_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert_refused(warmroute("sim", "--port", port, "--replicas", "1"), port)
