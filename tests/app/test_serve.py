"""`warmroute serve` as a process: its ports, its signals, its TLS, its log."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from tests.rig.client import Client, chat, request
from tests.rig.stage import Stage

START_S = 30.0
"""Two cores, other tests beside this one: an interpreter with all imports takes its time."""


@dataclass
class Served:
    """A running `warmroute serve` and what it said of itself."""

    process: asyncio.subprocess.Process
    said: list[str]

    @property
    def port(self) -> int:
        return self._port_in(self.said[0])

    @property
    def admin_port(self) -> int:
        return self._port_in(self.said[1])

    @staticmethod
    def _port_in(line: str) -> int:
        found = re.search(r":(\d+)/", line)
        assert found, line
        return int(found[1])

    async def ended(self) -> tuple[int, str]:
        """Wait for its end; return the exit code and what it wrote to stderr."""
        async with asyncio.timeout(START_S):
            _, err = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, err.decode()


async def launch(*arguments: str, **variables: str) -> asyncio.subprocess.Process:
    clean = {name: value for name, value in os.environ.items() if not name.upper().startswith("WARMROUTE_")}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "router", "serve", "--port", "0", "--admin-port", "0", *arguments,
        env=clean | variables, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


@asynccontextmanager
async def serving(*arguments: str, **variables: str) -> AsyncIterator[Served]:
    process = await launch(*arguments, **variables)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_S):
            said = [(await process.stdout.readline()).decode() for _ in range(2)]
        yield Served(process, said)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def refused(*arguments: str) -> str:
    """A start that must fail: exit code 2, nothing on stdout, one line on stderr, which is returned."""
    process = await launch(*arguments)
    async with asyncio.timeout(START_S):
        out, err = await process.communicate()
    assert (process.returncode, out) == (2, b"")
    assert re.fullmatch(r"warmroute: [^\n]+\n", err.decode()), err
    return err.decode()


async def test_port_0_takes_free_ports_and_prints_the_real_ones(stage: Stage) -> None:
    replica = await stage.replica()
    async with serving("--replica", replica.url) as served:
        assert re.fullmatch(r"warmroute: clients  http://127\.0\.0\.1:[1-9]\d*/v1\n", served.said[0])
        assert re.fullmatch(r"warmroute: admin    http://127\.0\.0\.1:[1-9]\d*/docs\n", served.said[1])
        assert served.port != served.admin_port
        assert (await stage.ask(served, chat())).status == 200
        async with httpx.AsyncClient(trust_env=False, verify=False) as admin:
            shown = (await admin.get(f"http://127.0.0.1:{served.admin_port}/api/fleet")).json()
        assert [known["url"] for known in shown["replicas"]] == [replica.url]


@pytest.mark.parametrize("option", ["--port", "--admin-port"])
async def test_a_port_in_use_is_one_line_and_exit_2(option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = await refused(option, str(port))
    assert f"127.0.0.1:{port}" in said
    assert "in use" in said


async def test_an_address_that_is_not_ours_is_one_line_and_exit_2() -> None:
    assert "203.0.113.1" in await refused("--host", "203.0.113.1")


async def test_it_starts_without_a_replica_and_says_so(stage: Stage) -> None:
    async with serving() as served:
        assert (await stage.ask(served, chat())).status == 503
        served.process.send_signal(signal.SIGTERM)
        code, err = await served.ended()
    assert code == 0
    assert "no replica is configured" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_a_running_stream_finish(stage: Stage, number: signal.Signals) -> None:
    replica = await stage.replica(time_scale=1.0)
    async with serving("--replica", replica.url) as served:
        client, idle = await stage.client(served), await stage.client(served)
        assert (await idle.ask(request("/livez"))).status == 200
        client.send(chat(stream=True, max_tokens=60, ignore_eos=True))
        answer = await client.head()
        await client.chunk(answer)
        served.process.send_signal(number)
        await idle.closed()
        await client.rest(answer)
        assert answer.events()[-1] == "[DONE]"
        assert len(answer.chunks) > 55
        await client.closed()
        code, _ = await served.ended()
    assert code == 0


async def test_after_a_signal_nothing_new_is_accepted(stage: Stage) -> None:
    replica = await stage.replica(time_scale=1.0)
    async with serving("--replica", replica.url) as served:
        client, idle = await stage.client(served), await stage.client(served)
        await idle.ask(request("/livez"))
        client.send(chat(stream=True, max_tokens=60, ignore_eos=True))
        answer = await client.head()
        served.process.send_signal(signal.SIGTERM)
        await idle.closed()
        with pytest.raises(ConnectionRefusedError):
            await Client.open(served.port)
        await client.rest(answer)
        assert answer.events()[-1] == "[DONE]"


async def test_a_stream_that_outlasts_the_grace_is_cut_and_frees_its_engine(stage: Stage) -> None:
    replica = await stage.replica(time_scale=1.0)
    async with serving("--replica", replica.url, "--grace-s", "1") as served:
        client = await stage.client(served)
        client.send(chat(stream=True, max_tokens=50_000, ignore_eos=True))
        answer = await client.head()
        await client.chunk(answer)
        served.process.send_signal(signal.SIGTERM)
        rest, _ = await client.remainder()
        assert b"[DONE]" not in rest
        await replica.wait_for(lambda: replica.engine.running == 0, 5.0)
        code, _ = await served.ended()
    assert code == 0


# TLS


@dataclass
class Certificates:
    authority: trustme.CA
    server: Path
    client: trustme.LeafCert
    authority_file: Path

    def context(self, *, with_client: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if with_client:
            self.client.configure_cert(context)
        return context


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    authority = trustme.CA()
    server, client = authority.issue_cert("localhost"), authority.issue_cert("client@example.com")
    file, authority_file = tmp_path / "server.pem", tmp_path / "authority.pem"
    server.private_key_and_cert_chain_pem.write_to_path(str(file))
    authority.cert_pem.write_to_path(str(authority_file))
    return Certificates(authority, file, client, authority_file)


async def test_tls_with_a_certificate_of_ones_own(stage: Stage, certificates: Certificates) -> None:
    replica = await stage.replica()
    async with serving("--replica", replica.url, "--ssl-certfile", str(certificates.server)) as served:
        assert served.said[0].startswith("warmroute: clients  https://")
        client = await stage.client(served, tls=certificates.context())
        for stream in (True, False):
            answer = await client.ask(chat(stream=stream))
            assert answer.status == 200
            assert answer.header("x-warmroute-decision") == "keyless"
        client.send(chat() + request("/livez") + chat())
        assert [(await client.answer()).status for _ in range(3)] == [200, 200, 200]
        garbled = await stage.client(served, tls=certificates.context())
        assert (await garbled.ask(b"nonsense\r\n\r\n")).status == 400
        plain = await stage.client(served)
        plain.send(chat())
        _, _ = await plain.remainder()
        assert (await client.ask(chat())).status == 200


async def test_a_client_that_leaves_is_noticed_behind_tls(stage: Stage, certificates: Certificates) -> None:
    replica = await stage.replica(time_scale=1.0)
    async with serving("--replica", replica.url, "--ssl-certfile", str(certificates.server)) as served:
        client = await stage.client(served, tls=certificates.context())
        client.send(chat(stream=True, max_tokens=50_000, ignore_eos=True))
        await client.chunk(await client.head())
        client.leave()
        await replica.wait_for(lambda: replica.engine.running == 0, 5.0)


async def test_client_certificates_are_demanded_where_authorities_are_given(
    stage: Stage, certificates: Certificates
) -> None:
    replica = await stage.replica()
    files = ["--ssl-certfile", str(certificates.server), "--ssl-ca-certs", str(certificates.authority_file)]
    async with serving("--replica", replica.url, *files) as served:
        known = await stage.client(served, tls=certificates.context(with_client=True))
        assert (await known.ask(chat())).status == 200
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            stranger = await stage.client(served, tls=certificates.context())
            await stranger.ask(chat())


async def test_an_unusable_certificate_is_one_line_and_exit_2(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    assert "TLS" in await refused("--ssl-certfile", str(broken))


async def test_an_engine_behind_tls_is_trusted_by_the_systems_authorities(
    stage: Stage, certificates: Certificates
) -> None:
    """Router before router: the second one listens with TLS. Requests, metrics and models go the same way."""
    replica = await stage.replica()
    async with serving("--replica", replica.url, "--ssl-certfile", str(certificates.server)) as inner:
        url = f"https://localhost:{inner.port}"
        trusted = {"SSL_CERT_FILE": str(certificates.authority_file)}
        async with serving("--replica", url, "--scrape-interval-s", "0.1", **trusted) as outer:
            assert (await stage.ask(outer, chat())).status == 200
            async with httpx.AsyncClient(trust_env=False, verify=False) as admin:
                address = f"http://127.0.0.1:{outer.admin_port}/api/fleet"
                shown: dict[str, Any] = (await admin.get(address)).json()["replicas"][0]
            assert shown["state"] == "ready"
        async with serving("--replica", url) as doubtful:
            assert (await stage.ask(doubtful, chat())).status == 503


# The log


def events(err: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in err.splitlines() if line.startswith("{")]


async def test_each_request_is_one_json_line_on_stderr(stage: Stage) -> None:
    replica = await stage.replica()
    async with serving("--replica", replica.url) as served:
        client = await stage.client(served)
        for ident in ("one", "two"):
            await client.ask(chat(headers=[("x-request-id", ident)]))
        served.process.send_signal(signal.SIGTERM)
        _, err = await served.ended()
    lines = [event for event in events(err) if event["event"] == "request_finished"]
    assert [line["request_id"] for line in lines] == ["one", "two"]
    assert lines[0]["status"] == 200
    assert lines[0]["reason"] == "keyless"
    assert lines[0]["prompt_tokens"] > 0
    assert lines[0]["overhead_ms"] >= 0
    assert "hello there" not in err, "no prompt is logged"


async def test_the_log_can_be_turned_off(stage: Stage) -> None:
    replica = await stage.replica()
    async with serving("--replica", replica.url, "--no-log-requests") as served:
        await stage.ask(served, chat())
        served.process.send_signal(signal.SIGTERM)
        _, err = await served.ended()
    assert events(err) == []
