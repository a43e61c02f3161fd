"""`warmroute health`: 0 for what answers 200 in time; 1 and one line on stderr for anything else."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from router.app.health.asking import UnwellError, ask
from router.sim.faults import Fault, FaultKind
from tests.rig.served import serving
from tests.rig.stage import Stage
from tests.rig.upstream import Peer, answering

SOON_S = 0.3


async def health(*arguments: str, **variables: str) -> tuple[int, str]:
    """Run the command; return its exit code and what it says, which is at most one line, and only if it fails."""
    clean = {name: value for name, value in os.environ.items() if not name.upper().startswith("WARMROUTE_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "router", "health", *arguments, env=clean | variables, stdout=-1, stderr=-1
    )
    async with asyncio.timeout(30):
        out, err = await process.communicate()
    assert out == b""
    assert process.returncode is not None
    assert re.fullmatch(r"" if process.returncode == 0 else r"warmroute: [^\n]+\n", err.decode()), err
    return process.returncode, err.decode()


async def complaint(url: str) -> str:
    with pytest.raises(UnwellError) as unwell:
        await asyncio.to_thread(ask, url, within_s=SOON_S)
    assert "\n" not in str(unwell.value)
    return str(unwell.value)


# A router


async def test_a_router_is_found_by_the_environment_and_by_the_file(stage: Stage, tmp_path: Path) -> None:
    router = await stage.router(await stage.replica())
    file = tmp_path / "warmroute.toml"
    file.write_text(f"port = {router.port}\ngrace_s = 5\n")
    assert await health(WARMROUTE_HOST="0.0.0.0", WARMROUTE_PORT=str(router.port)) == (0, "")
    assert await health(WARMROUTE_CONFIG=str(file)) == (0, "")
    assert await health("--config", str(file)) == (0, "")


async def test_a_router_without_a_replica_is_not_ready(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica, watched=True, health_interval_s=0.1)
    replica.faults.set(Fault(FaultKind.REFUSE))
    await router.until(lambda: not router.books(replica).health.up)
    code, said = await health(WARMROUTE_PORT=str(router.port))
    assert (code, said) == (
        1,
        f"warmroute: http://127.0.0.1:{router.port}/readyz answers 503: "
        '{"status":"no replica is up","replicas":1,"up":0}\n',
    )


async def test_a_router_that_is_told_to_stop_is_not_ready(stage: Stage) -> None:
    replica = await stage.replica()
    async with serving("--replica", replica.url, "--drain-s", "20") as served:
        assert (await health(f"http://127.0.0.1:{served.port}"))[0] == 0
        served.send(signal.SIGTERM)
        await served.line("stopping: ")
        code, said = await health(WARMROUTE_PORT=str(served.port))
        assert code == 1
        assert '"stopping"' in said


async def test_no_router_is_a_refused_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert await health(WARMROUTE_PORT=str(port)) == (
        1,
        f"warmroute: http://127.0.0.1:{port}/readyz: Connection refused\n",
    )


async def test_settings_that_can_not_be_used_are_one_line_and_no_health() -> None:
    code, said = await health(WARMROUTE_PORT="no port")
    assert code == 1
    assert "WARMROUTE_PORT" in said
    assert "port is 0" in (await health(WARMROUTE_PORT="0"))[1]


# TLS


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    authority = trustme.CA()
    file = tmp_path / "server.pem"
    authority.issue_cert("router.example", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(file))
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    return file


async def test_behind_tls_the_routers_own_certificate_is_taken(stage: Stage, certificate: Path) -> None:
    replica = await stage.replica()
    async with serving("--replica", replica.url, "--ssl-certfile", str(certificate)) as served:
        variables = {"WARMROUTE_PORT": str(served.port), "WARMROUTE_SSL_CERTFILE": str(certificate)}
        assert await health(**variables) == (0, "")
        code, said = await health(f"https://127.0.0.1:{served.port}/readyz")
        assert code == 1
        assert "certificate" in said.lower()
        trusted = {"SSL_CERT_FILE": str(certificate.with_name("authority.pem"))}
        assert await health(f"https://127.0.0.1:{served.port}/readyz", **trusted) == (0, "")


async def test_where_clients_need_a_certificate_the_admin_port_is_asked(stage: Stage, certificate: Path) -> None:
    replica = await stage.replica()
    authority = str(certificate.with_name("authority.pem"))
    files = {"WARMROUTE_SSL_CERTFILE": str(certificate), "WARMROUTE_SSL_CA_CERTS": authority}
    token = {"WARMROUTE_ADMIN_TOKEN": "a token of some length"}
    async with serving("--replica", replica.url, variables=files | token) as served:
        ports = {"WARMROUTE_PORT": str(served.port), "WARMROUTE_ADMIN_PORT": str(served.admin_port)}
        assert await health(**files, **ports) == (0, "")


# An engine, or anything else


async def test_an_engine_is_asked_for_its_health(stage: Stage) -> None:
    replica = await stage.replica()
    for url in (replica.url, f"{replica.url}/health"):
        assert await health(url) == (0, "")
    assert replica.requests[-1].path == "/health"
    code, said = await health(f"{replica.url}/nowhere")
    assert code == 1
    assert "answers 404" in said


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 9\r\n\r\nnot\n\x1b[31m y", "answers 503: not [31m y"),
        (b"HTTP/1.1 302 Found\r\nlocation: /\r\n\r\n", "answers 302"),
        (b"HTTP/1.1 503\r\n\r\n" + b"x" * 5000, "x" * 300),
        (b"HTTP/2 200\r\n\r\n", "is not HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "is not HTTP"),
        (b"\r\n", "is not HTTP"),
    ],
    ids=["503", "redirect", "long", "HTTP/2", "ssh", "empty line"],
)
async def test_any_other_answer_is_said_in_one_line(stage: Stage, answer: bytes, says: str) -> None:
    upstream = await stage.upstream(answering(answer))
    said = await complaint(upstream.url)
    assert said.endswith(says)
    assert len(said) < 400


async def test_a_connection_that_is_closed_is_no_answer(stage: Stage) -> None:
    async def close(peer: Peer) -> None:
        await peer.request()
        peer.close()

    upstream = await stage.upstream(close)
    assert (await complaint(upstream.url)).endswith("closed without an answer")


async def test_what_does_not_answer_in_time_is_not_well(stage: Stage) -> None:
    async def byte_by_byte(peer: Peer) -> None:
        await peer.request()
        peer.send(b"HTTP/1.1 2")
        await peer.gone()

    upstream = await stage.upstream(byte_by_byte)
    assert (await complaint(upstream.url)).endswith(f"has not answered within {SOON_S} s")


async def test_a_200_is_enough_whatever_follows_it(stage: Stage) -> None:
    async def endless(peer: Peer) -> None:
        await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        await peer.gone()

    upstream = await stage.upstream(endless)
    await asyncio.to_thread(ask, upstream.url, within_s=SOON_S)


@pytest.mark.parametrize(
    "url", ["", "localhost:8000", "ftp://a/", "http://", "http://a:b/", "http://a:0/", "http://u:p@a/", "http://a/ b"]
)
async def test_what_is_no_url_is_said_so(url: str) -> None:
    assert "is no URL to ask" in await complaint(url)


async def test_a_name_that_does_not_exist_is_said_so() -> None:
    assert (await complaint("http://nowhere.invalid/")).startswith("http://nowhere.invalid/: ")


# Lightness


def test_it_loads_neither_the_command_line_nor_the_settings() -> None:
    """A container runs it every few seconds; pydantic and typer alone would take ten times as long as it does."""
    code = (
        "import sys; sys.argv = ['warmroute', 'health', 'http://127.0.0.1:0/']\n"
        "from router.app.entry import main\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code, [m for m in sys.modules if m.partition('.')[0] in LIGHT_NOT])"
    ).replace("LIGHT_NOT", "{'pydantic', 'typer', 'rich', 'asyncio', 'ssl', 'http', 'email', 'importlib.metadata'}")
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert outcome.stdout == "1 []\n"


async def test_its_help_is_that_of_the_other_commands() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "router", "health", "--help", stdout=-1)
    out, _ = await process.communicate()
    assert process.returncode == 0
    assert b"--config" in out
