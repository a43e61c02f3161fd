"""`warmroute serve` as a process: its ports, its signals, its TLS, its log."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.rig.client import Client, chat, request
from tests.rig.served import refused, serving
from tests.rig.stage import Stage


async def test_port_0_takes_free_ports_and_prints_the_real_ones(stage: Stage) -> None:
    replica = await stage.replica()
    async with serving("--replica", replica.url) as served:
        assert re.fullmatch(r"warmroute: clients  http://127\.0\.0\.1:[1-9]\d*/v1\n", served.said[0])
        assert re.fullmatch(r"warmroute: admin    http://127\.0\.0\.1:[1-9]\d*/\n", served.said[1])
        assert served.port != served.admin_port
        assert (await stage.ask(served, chat())).status == 200
        assert [known["url"] for known in (await served.fleet())["replicas"]] == [replica.url]


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
        served.send(signal.SIGTERM)
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
        served.send(number)
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
        served.send(signal.SIGTERM)
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
        served.send(signal.SIGTERM)
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
        async with serving("--replica", url, "--scrape-interval-s", "0.1", variables=trusted) as outer:
            assert (await stage.ask(outer, chat())).status == 200
            assert (await outer.fleet())["replicas"][0]["state"] == "ready"
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
        served.send(signal.SIGTERM)
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
        served.send(signal.SIGTERM)
        _, err = await served.ended()
    assert events(err) == []


async def test_more_files_are_opened_than_the_soft_limit_lets_a_shell_open(stage: Stage) -> None:
    replica = await stage.replica()
    lowered = ["sh", "-c", 'ulimit -Sn 64; exec "$@"', "sh"]
    async with serving("--replica", replica.url, through=lowered) as served:
        clients = [await stage.client(served) for _ in range(100)]
        for client in clients:
            client.send(chat())
        assert {(await client.answer()).status for client in clients} == {200}
