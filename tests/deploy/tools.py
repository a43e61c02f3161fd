"""prometheus and promtool, where they are installed; and a running Prometheus."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.rig import programs
from tests.rig.sharing import eventually

REQUIRED = "REQUIRE_PROMETHEUS"
"""Where this variable is set, a missing program is a failure."""

PORTS_TRIED = 3


def program(name: str) -> str:
    """The path of prometheus or promtool; without it the test is skipped."""
    return programs.program(name, "on Debian: apt install prometheus", REQUIRED)


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [program("promtool"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)


class Prometheus:
    """Its HTTP API."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer; an error fails the test."""
        answer = await self._client.get(f"/api/v1/{path}", params=parameters)
        assert answer.status_code == 200, f"{parameters}: {answer.text}"
        return answer.json()["data"]

    async def values(self, expr: str) -> list[float]:
        """What an expression is now; NaN is no value."""
        found = await self.get("query", query=expr)
        samples = [found["result"]] if found["resultType"] == "scalar" else [row["value"] for row in found["result"]]
        return [value for _, text in samples if (value := float(text)) == value]

    async def ready(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return (await self._client.get("/-/ready")).status_code == 200
        return False


@contextlib.asynccontextmanager
async def running_prometheus(config: dict[str, Any], folder: Path) -> AsyncIterator[Prometheus]:
    """A Prometheus on a port of its own that forgets everything at the end."""
    path = program("prometheus")
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    for tries_left in reversed(range(PORTS_TRIED)):
        port = _free_port()
        command = [
            path, f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}", "--log.level=warn",
            f"--web.listen-address=127.0.0.1:{port}",
        ]  # fmt: skip
        with (folder / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
        client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, verify=False, timeout=10)
        server = Prometheus(client)
        try:
            if await _ready(server, process):
                yield server
                return
            assert tries_left, (folder / "log").read_text()
        finally:
            await client.aclose()
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()


async def _ready(server: Prometheus, process: asyncio.subprocess.Process) -> bool:
    """Wait until it is; False when it has ended instead, for somebody else has its port by now."""

    async def looked() -> bool:
        return process.returncode is not None or await server.ready()

    await eventually(looked, "Prometheus is not ready")
    return process.returncode is None


def _free_port() -> int:
    """Prometheus cannot tell which port it got for 0."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port
