"""A router that logs all it can: no key, no password and no word of a prompt is in anything it writes or shows."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from router.app.settings.sources import ConfigError, load
from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from tests.redis_server import RedisServer
from tests.rig.client import CHAT, chat, chunked, request
from tests.rig.collector import Collector
from tests.rig.served import Served, serving
from tests.rig.stage import Stage

CLIENT_KEY = "wr-marked-client-key"
WRONG_KEY = "wr-marked-wrong-key"
ENGINE_KEY = "marked-engine-key"
ADMIN_TOKEN = "marked-admin-token"
WRONG_TOKEN = "marked-wrong-token"
REDIS_PASSWORD = "marked-redis-password"
REDIS_SECRET = "marked-redis-secret"
OTEL_SECRET = "marked-otel-header"
SESSION = "marked-session-of-anna"
COOKIE = "marked-cookie"
TEXT = "the marked diagnosis of a patient"

SECRETS = (
    CLIENT_KEY, WRONG_KEY, ENGINE_KEY, ADMIN_TOKEN, WRONG_TOKEN, REDIS_PASSWORD, REDIS_SECRET, OTEL_SECRET, SESSION,
    COOKIE, TEXT,
)  # fmt: skip

HEADERS = (("authorization", f"Bearer {CLIENT_KEY}"), ("x-session-id", SESSION), ("cookie", f"a={COOKIE}"))

QUERY = f"{CHAT}?api_key={COOKIE}"


def marked(**fields: Any) -> bytes:
    body = {"model": "sim-model", "max_tokens": 4, "messages": [{"role": "user", "content": f"{TEXT}. " * 60}]}
    return request(CHAT, body | fields, headers=[*HEADERS, ("connection", "close")])


def found_in(text: bytes) -> list[str]:
    return [secret for secret in SECRETS if secret.encode() in text or secret.encode().hex().encode() in text]


class Watched:
    """A served router with every secret there is, and what it writes and shows."""

    def __init__(self, served: Served, server: RedisServer) -> None:
        self.served = served
        self._server = server

    async def shown(self) -> dict[str, bytes]:
        """All that the admin port answers, without its token and with it."""
        shown: dict[str, bytes] = {}
        base_url = f"http://127.0.0.1:{self.served.admin_port}"
        async with httpx.AsyncClient(base_url=base_url, trust_env=False, verify=False) as client:
            for token in (WRONG_TOKEN, ADMIN_TOKEN):
                client.headers["authorization"] = f"Bearer {token}"
                schema = (await client.get("/openapi.json")).json()
                for path, methods in schema.get("paths", {"/api/overview": {"get": {}}}).items():
                    if "get" in methods and path != "/api/events":
                        shown[f"{path} {token}"] = (await client.get(path.replace("{id}", "nothing"))).content
                await client.put("/api/replicas", json={"url": f"ftp://{WRONG_TOKEN}@host"})
                await client.post("/api/reload")
            (session, *_) = (await client.get("/api/sessions")).json()
            shown["session"] = (await client.get(f"/api/sessions/{session['session']}")).content
            asked = {"model": "sim-model", "messages": [{"role": "user", "content": TEXT * 60}]}
            shown["explain"] = (await client.post("/api/explain", json=asked)).content
        assert len(shown) > 10
        return shown

    def in_redis(self) -> bytes:
        client = redis.Redis.from_url(self._server.url, password=REDIS_PASSWORD)
        with contextlib.closing(client):
            keys = list(client.scan_iter())
            values: list[Any] = [client.dump(key) for key in keys]
            assert keys
            return b"".join([*keys, *values])


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer("--requirepass", REDIS_PASSWORD, "--rdbcompression", "no") as server:
        yield server


def environment(server: RedisServer, collector: str) -> dict[str, str]:
    return {
        "WARMROUTE_API_KEYS": CLIENT_KEY,
        "WARMROUTE_ENGINE_API_KEY": ENGINE_KEY,
        "WARMROUTE_ADMIN_TOKEN": ADMIN_TOKEN,
        "WARMROUTE_REDIS": server.url.replace("//", f"//:{REDIS_PASSWORD}@"),
        "WARMROUTE_REDIS_SECRET": REDIS_SECRET,
        "WARMROUTE_OTLP_ENDPOINT": collector,
        "OTEL_EXPORTER_OTLP_HEADERS": f"x-collector-key={OTEL_SECRET}",
    }


async def go_well(stage: Stage, served: Served, replica: SimReplica) -> None:
    for fields in ({}, {"stream": True}, {"session_id": SESSION, "user": COOKIE}):
        assert (await stage.ask(served, marked(**fields))).status == 200
    assert (
        await stage.ask(served, request(QUERY, json.loads(marked().partition(b"\r\n\r\n")[2]), headers=HEADERS))
    ).status
    heard = replica.requests[-1]
    assert TEXT.encode() in heard.body
    assert ENGINE_KEY in str(heard.headers)


async def go_wrong(stage: Stage, served: Served, replica: SimReplica) -> None:
    """Each way for a request to fail that has a line of its own in a log somewhere."""
    keyless = (("x-session-id", SESSION),)
    asked = {
        "without a key": chat(TEXT, headers=keyless),
        "with a wrong key": chat(TEXT, headers=[("authorization", f"Bearer {WRONG_KEY}"), *keyless]),
        "that is no HTTP": f"GET {TEXT} {CLIENT_KEY}\r\n\r\n".encode(),
        "with no JSON": request(CHAT, f'{{"model": "sim-model", "messages": [{TEXT}'.encode(), headers=HEADERS),
        "of no Unicode": request(CHAT, b'{"model": "\xff' + TEXT.encode() + b'"}', headers=HEADERS),
        "of a strange shape": request(CHAT, {"model": [TEXT], "messages": {TEXT: 1}}, headers=HEADERS),
        "with broken chunks": request(CHAT, chunked(TEXT.encode(), last=b"zz\r\n"), headers=[
            *HEADERS, ("transfer-encoding", "chunked")]),
        "that is too large": request(CHAT, b"", headers=[*HEADERS, ("content-length", str(1 << 40))]),
        "for nothing": request(f"/nothing/{COOKIE}", {"text": TEXT}, headers=HEADERS),
    }  # fmt: skip
    for name, data in asked.items():
        assert 400 <= (await stage.ask(served, data)).status < 500, name
    for kind in (FaultKind.RESET_BEFORE_FIRST_BYTE, FaultKind.STATUS, FaultKind.STREAM_ERROR):
        replica.faults.set(Fault(kind, count=1))
        await stage.ask(served, marked(stream=True))
    replica.faults.set(Fault(FaultKind.DIE_AFTER_CHUNKS, count=1))
    broken = await stage.client(served)
    broken.send(marked(stream=True, max_tokens=60, ignore_eos=True))
    await broken.remainder()
    replica.faults.clear()
    leaving = await stage.client(served)
    leaving.send(marked(stream=True, max_tokens=1_000, ignore_eos=True))
    await leaving.head()
    leaving.reset()


async def test_no_secret_is_in_anything_that_a_router_writes_or_shows(
    stage: Stage, tmp_path: Path, server: RedisServer
) -> None:
    replica, dead = await stage.replicas(2)
    dead.faults.set(Fault(FaultKind.REFUSE))
    kept = ("--record", str(tmp_path / "traffic"), "--warm-up-tokens", "10000", "--touch")
    settings = ("--replica", replica.url, "--replica", dead.url, "--log-level", "debug", "--max-retries", "1", *kept)
    async with Collector() as collector, serving(*settings, variables=environment(server, collector.url)) as served:
        watched = Watched(served, server)
        await go_well(stage, served, replica)
        await go_wrong(stage, served, replica)
        await go_well(stage, served, replica)
        shown = await watched.shown()
        served.send(signal.SIGHUP)
        in_redis = watched.in_redis()
        said = "".join(served.said)
        served.send(signal.SIGTERM)
        code, log = await served.ended()
        spans = repr(collector.spans)
    assert code == 0
    assert log.count('"event":"request_finished"') > 15
    assert "reload (SIGHUP)" in log
    assert spans.count("Span(") > 10
    recorded = (tmp_path / "traffic").read_bytes()
    assert recorded.count(b"\n") > 5
    written = {"log": log.encode(), "outputs": said.encode(), "spans": spans.encode(), "recording": recorded}
    for where, text in (written | {"Redis": in_redis} | shown).items():
        assert found_in(text) == [], where


async def test_a_wrong_password_of_redis_is_not_in_the_log(stage: Stage, server: RedisServer) -> None:
    """Redis repeats names and not passwords; a router that can't get in goes on alone."""
    replica = await stage.replica()
    wrong = {"WARMROUTE_REDIS": server.url.replace("//", f"//{SESSION}:{WRONG_TOKEN}@")}
    async with serving("--replica", replica.url, "--log-level", "debug", variables=wrong) as served:
        await served.line("(?i)redis")
        assert (await stage.ask(served, marked())).status == 200
        served.send(signal.SIGTERM)
        _, log = await served.ended()
    assert found_in(log.encode() + "".join(served.said).encode()) == []


async def test_no_secret_is_in_the_state_file(stage: Stage, tmp_path: Path) -> None:
    replica, state = await stage.replica(), tmp_path / "state"
    kept = ("--replica", replica.url, "--state-file", str(state), "--log-level", "debug")
    keys = {"WARMROUTE_API_KEYS": CLIENT_KEY, "WARMROUTE_ENGINE_API_KEY": ENGINE_KEY + "\n"}
    async with serving(*kept, variables=keys) as served:
        await go_well(stage, served, replica)
        served.send(signal.SIGTERM)
        code, log = await served.ended()
    assert code == 0
    assert len(state.read_bytes()) > 500
    assert found_in(state.read_bytes() + log.encode()) == []


@pytest.mark.parametrize(
    "flags",
    [
        {"admin_token": "marked"},
        {"redis": "redis://:marked@host:port"},
        {"redis": "marked://:marked@host"},
        {"redis_secret": "marked"},
        {"otlp_endpoint": "ftp://marked:marked@host"},
        {"replica": ["http://marked:marked@host:8000"]},
        {"engine_api_key": "marked\nx-more: marked"},
    ],
    ids=str,
)
def test_a_start_that_fails_does_not_repeat_what_was_secret(flags: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as error:
        load(flags)
    assert "marked" not in str(error.value)


def test_a_key_from_a_file_of_its_own_loses_its_end_of_line() -> None:
    key = load({"engine_api_key": f"{ENGINE_KEY}\n"}).settings.engine_api_key
    assert key is not None
    assert key.get_secret_value() == ENGINE_KEY


def test_check_config_masks_what_is_secret(server: RedisServer) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "router", "check-config"],
        env=os.environ | environment(server, "http://collector:4318"), capture_output=True, timeout=50, check=True,
    )  # fmt: skip
    assert found_in(checked.stdout + checked.stderr) == []
    assert b"redis" in checked.stdout


async def test_the_key_of_session_ids_is_none_of_the_numbers_that_clients_see(stage: Stage) -> None:
    """Request ids come of the same generator in each process that was started with one seed; this key must not."""
    told = []
    for _ in range(2):
        random.seed(7)
        router = await stage.router(await stage.replica())
        answer = await stage.ask(router, chat("hello " * 200, headers=[("x-warmroute-explain", "1"), *HEADERS[1:]]))
        said = answer.header("x-warmroute-explain") or ""
        told.append(said.partition("session=")[2].partition(";")[0])
    assert all(told)
    assert told[0] != told[1]
