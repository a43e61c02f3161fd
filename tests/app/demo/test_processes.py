"""The demo's child processes start, are found, and are gone at the end."""

import os

import httpx
import pytest

from router.app.demo.processes import DemoFailed, router, simulated_fleet


def test_router_and_fleet_answer_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARMROUTE_POLICY", "nonsense: the children must not see this")
    with simulated_fleet(2, []) as fleet:
        with router(fleet, ["--port", "0", "--admin-port", "0"]) as urls:
            assert httpx.get(f"{urls.clients}/livez", trust_env=False).status_code == 200
            assert httpx.get(f"{urls.admin}/metrics", trust_env=False).status_code == 200
            assert len(httpx.get(f"{urls.admin}/api/fleet", trust_env=False).json()["replicas"]) == 2
        with pytest.raises(httpx.ConnectError):
            httpx.get(urls.clients, trust_env=False)
    for url in fleet:
        with pytest.raises(httpx.ConnectError):
            httpx.get(url, trust_env=False)


def test_a_child_that_cannot_start_is_told() -> None:
    with (
        pytest.raises(DemoFailed, match="`warmroute sim` ended with exit code 2"),
        simulated_fleet(1, ["--host", "nowhere.invalid"]),
    ):
        pass
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
