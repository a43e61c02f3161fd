"""A running nginx, where it is installed, as one that is set up to pass requests on and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from tests.rig.client import DEADLINE_S
from tests.rig.programs import program

PORTS_TRIED = 3
LOOK_S = 0.005

_CONF = """\
daemon off; master_process off; pid {home}/nginx.pid; error_log {home}/error.log; {user}
events {{ worker_connections 256; }}
http {{
  access_log off; client_body_temp_path {home}/body; proxy_temp_path {home}/proxy;
  fastcgi_temp_path {home}/fastcgi; uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;
  upstream engine {{ server 127.0.0.1:{engine_port}; keepalive 16; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
"""
"""Its defaults, but for kept connections to the engine, which is what smuggled requests come in by."""


@dataclass(frozen=True)
class Nginx:
    """One that runs."""

    port: int


def installed() -> str:
    """The path of nginx; without it the test is skipped, or fails where REQUIRE_NGINX is set."""
    return program("nginx", "on Debian: apt install nginx-light", "REQUIRE_NGINX")


def version() -> str:
    """Its version's first two numbers, such as 1.22."""
    said = subprocess.run([installed(), "-v"], capture_output=True, text=True, timeout=DEADLINE_S, check=True).stderr
    found = re.search(r"nginx/(\d+\.\d+)", said)
    assert found, said
    return found[1]


@contextlib.asynccontextmanager
async def serving(home: Path, engine_port: int) -> AsyncIterator[Nginx]:
    """Run it in front of one engine until the end of the block."""
    for tried in range(PORTS_TRIED):
        port = _free_port()
        process = await _start(home, port, engine_port)
        if await _listens(process, port):
            break
        assert tried < PORTS_TRIED - 1, (home / "error.log").read_text()
    try:
        yield Nginx(port)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


async def _start(home: Path, port: int, engine_port: int) -> asyncio.subprocess.Process:
    user = "user root;" if os.geteuid() == 0 else ""
    conf = home / "nginx.conf"
    conf.write_text(_CONF.format(home=home, user=user, engine_port=engine_port, port=port))
    return await asyncio.create_subprocess_exec(
        installed(), "-p", str(home), "-c", str(conf), stderr=asyncio.subprocess.DEVNULL
    )


async def _listens(process: asyncio.subprocess.Process, port: int) -> bool:
    """Wait until it accepts connections; return whether it does, and has not ended."""
    async with asyncio.timeout(DEADLINE_S):
        while process.returncode is None:
            with contextlib.suppress(ConnectionError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return True
            await asyncio.sleep(LOOK_S)
    return False
