"""`warmroute top` against a live router: a frame, JSON, the terminal with its keys, and routers that are not there."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest
import trustme
from pydantic import SecretStr

from router.app.terminal.numbers import percent
from tests.rig.client import chat
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.terminal import in_terminal

STORY = "a long story of the harbour, " * 100


async def warmroute(*arguments: str, **variables: str) -> tuple[int, str, str]:
    """Run it without a terminal: exit code, standard output, standard error."""
    clean = {name: value for name, value in os.environ.items() if not name.upper().startswith("WARMROUTE_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "router", *arguments, env=clean | {"COLUMNS": "110"} | variables,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(30):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def refused(*arguments: str, **variables: str) -> str:
    """A start that must fail: exit code 2, nothing on standard output, one line on standard error."""
    code, out, err = await warmroute("top", *arguments, **variables)
    assert (code, out) == (2, ""), err
    assert re.fullmatch(r"warmroute: [^\n]+\n", err), err
    return err


async def url_of(router: Router) -> str:
    return str((await router.admin()).base_url).rstrip("/")


async def served(stage: Stage, count: int = 2, **settings: Any) -> tuple[Router, str]:
    """A router that has served one chat of two turns; the URL of its admin port."""
    router = await stage.router(*await stage.replicas(count), **settings)
    for _ in range(2):
        answer = await stage.ask(router, chat(STORY, stream=True, stream_options={"include_usage": True}))
        assert answer.status == 200
    await router.idle()
    return router, await url_of(router)


# Once


async def test_once_prints_the_figures_of_the_api(stage: Stage) -> None:
    router, url = await served(stage)
    code, out, err = await warmroute("top", "--once", url)
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    shown = (await (await router.admin()).get("/api/overview")).json()["windows"]["5m"]
    assert 0 < shown["hit_ratio"] < 1
    assert "2 requests, 0 failed" in out
    assert f"{percent(shown['hit_ratio'])} reported" in out
    assert f"{percent(shown['predicted_ratio'])} predicted" in out
    assert re.search(r"decisions +new 1  warm 1\n", out)
    for replica in router.house.fleet:
        assert re.search(rf"{replica.replica_id} +127\.0\.0\.1:\d+ +(ready|joining) +0% ", out)
    last = (await (await router.admin()).get("/api/decisions?limit=1")).json()[0]["decision"]["replica"]
    assert re.search(rf"warm +{last} ", out)


async def test_without_a_terminal_it_prints_once_as_well(stage: Stage) -> None:
    _, url = await served(stage)
    code, out, err = await warmroute("top", url.removeprefix("http://"), "--window", "24h", COLUMNS="80")
    assert (code, err) == (0, "")
    assert "[24h]  2 requests" in out
    assert max(map(len, out.splitlines())) <= 80


async def test_json_is_the_overview(stage: Stage) -> None:
    router, url = await served(stage)
    code, out, _ = await warmroute("top", "--json", url)
    assert code == 0
    said, asked = json.loads(out), (await (await router.admin()).get("/api/overview")).json()
    passing = ("now_s", "uptime_s")
    assert {name: said[name] for name in said if name not in passing} == {
        name: asked[name] for name in asked if name not in passing
    }


async def test_a_terminal_that_knows_no_blocks_gets_a_frame_all_the_same(stage: Stage) -> None:
    _, url = await served(stage)
    code, out, _ = await warmroute("top", "--once", url, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert code == 0
    assert "2 requests" in out


async def test_several_routers_are_added_up(stage: Stage) -> None:
    (_, first), (_, second) = await served(stage), await served(stage)
    code, out, _ = await warmroute("top", "--once", first, second)
    assert code == 0
    assert "4 requests, 0 failed" in out
    for url in (first, second):
        assert re.search(rf"{url.removeprefix('http://')} +2 +\d", out)
    code, out, _ = await warmroute("top", "--json", first, second)
    assert [(url, said["windows"]["5m"]["requests"]) for url, said in json.loads(out).items()] == [
        (first, 2), (second, 2)
    ]  # fmt: skip


async def test_of_several_one_may_be_away(stage: Stage, unused_tcp_port: int) -> None:
    _, url = await served(stage)
    gone = f"http://127.0.0.1:{unused_tcp_port}"
    code, out, _ = await warmroute("top", "--once", url, gone)
    assert code == 0
    assert "2 requests" in out
    assert re.search(rf"{gone}: no answer since [\d:]+ \(connection refused\)", out)
    code, out, _ = await warmroute("top", "--json", url, gone)
    assert (code, json.loads(out)[gone]) == (0, None)


# Not at all


async def test_nobody_listens(unused_tcp_port: int) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}"
    assert await refused(url) == f"warmroute: {url}: connection refused\n"
    assert await refused("--json", url) == f"warmroute: {url}: connection refused\n"


async def test_the_client_port_is_not_the_admin_port(stage: Stage) -> None:
    router = await stage.router(await stage.replica())
    assert "not the admin port of a router: /api/overview is answered 404" in await refused(router.url)


async def test_an_engine_is_no_router(stage: Stage) -> None:
    assert "not the admin port of a router" in await refused((await stage.replica()).url)


async def test_a_certificate_of_an_authority_that_is_not_the_systems(tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert f"{url}: no TLS with it: unable to get local issuer certificate" in await refused(url)
        assert "TLS" not in await refused(url, SSL_CERT_FILE=str(tmp_path / "ca.pem"))


async def test_https_where_there_is_none(stage: Stage) -> None:
    url = (await stage.replica()).url.replace("http:", "https:")
    assert re.search("no TLS with it: (wrong version number|record layer failure|unexpected eof)", await refused(url))


@pytest.mark.parametrize("url", ["ftp://127.0.0.1:9090", "http://", "http://127.0.0.1:port"])
async def test_what_is_no_url(url: str) -> None:
    assert url in await refused(url)


async def test_the_token_comes_from_the_environment(stage: Stage) -> None:
    _, url = await served(stage, admin_token=SecretStr("open sesame"))
    assert "the admin port wants its token: set WARMROUTE_ADMIN_TOKEN" in await refused(url)
    wrong = await refused(url, WARMROUTE_ADMIN_TOKEN="guessed")
    assert "WARMROUTE_ADMIN_TOKEN has another one" in wrong
    assert "guessed" not in wrong
    code, out, _ = await warmroute("top", "--once", url, WARMROUTE_ADMIN_TOKEN="open sesame")
    assert (code, "2 requests" in out) == (0, True)


async def test_what_is_secret_in_a_url_is_not_shown(unused_tcp_port: int) -> None:
    assert "secret" not in await refused(f"http://me:secret@127.0.0.1:{unused_tcp_port}/?key=secret")


@pytest.mark.parametrize("arguments", [["--window", "7m"], ["--interval", "0"], ["--limit", "3"]])
async def test_arguments_that_can_not_be(arguments: list[str]) -> None:
    assert arguments[0] in await refused(*arguments)


# In a terminal


async def test_it_draws_switches_windows_and_leaves_the_terminal_as_it_was(stage: Stage) -> None:
    _, url = await served(stage)
    async with in_terminal("top", url) as terminal:
        await terminal.shows(r"\[5m\].* 2 requests, 0 failed.*q quit")
        assert "\x1b[?1049h" in terminal.written
        assert not terminal.is_as_before
        terminal.press("2")
        await terminal.shows(r"\[1h\].* 2 requests")
        terminal.press("3")
        await terminal.shows(r"\[24h\].* 2 requests")
        terminal.press("\x1b[1;2C")  # an arrow key has digits in it
        terminal.press("1")
        terminal.forget()
        await terminal.shows(r"\[5m\]")
        terminal.press("q")
        assert await terminal.ended() == 0
        await terminal.writes("\x1b[?1049l")
        await terminal.writes("\x1b[?25h")
        assert terminal.is_as_before


async def test_it_shows_what_happens_meanwhile(stage: Stage) -> None:
    router, url = await served(stage)
    async with in_terminal("top", "--interval", "0.2", url) as terminal:
        await terminal.shows("2 requests")
        await stage.ask(router, chat(STORY))
        await terminal.shows("3 requests")


async def test_it_follows_the_size_of_the_terminal(stage: Stage) -> None:
    _, url = await served(stage)
    async with in_terminal("top", "--interval", "3600", url, columns=140, lines=40) as terminal:
        await terminal.shows(r"address.*model +request .*q quit")
        assert "…" not in terminal.text  # nothing was cut to the 80 columns that the environment still says
        terminal.resize(80, 24)
        await terminal.shows(r"replica +state .*q quit")
        last_frame = terminal.written.rpartition("\x1b[1;1H")[2]
        assert "address" not in last_frame
        assert max(map(int, re.findall(r"\x1b\[(\d+);1H", last_frame))) <= 24


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {}])
async def test_no_color_is_respected(stage: Stage, variables: dict[str, str]) -> None:
    _, url = await served(stage)
    async with in_terminal("top", url, variables=variables) as terminal:
        await terminal.shows("q quit")
        coloured = re.search(r"\x1b\[(?:\d+;)*3[0-7](?:;\d+)*m", terminal.written)
        assert (coloured is None) == bool(variables)


@pytest.mark.parametrize(("key", "number", "code"), [("\x03", None, 130), ("", signal.SIGTERM, 143)])
async def test_signals_leave_the_terminal_as_it_was(
    stage: Stage, key: str, number: signal.Signals | None, code: int
) -> None:
    _, url = await served(stage)
    async with in_terminal("top", url) as terminal:
        await terminal.shows("q quit")
        if number is None:
            terminal.press(key)
        else:
            terminal.send(number)
        assert await terminal.ended() == code
        await terminal.writes("\x1b[?1049l")
        assert terminal.is_as_before
        assert "Traceback" not in terminal.text


async def test_ctrl_z_gives_the_terminal_back_meanwhile(stage: Stage) -> None:
    _, url = await served(stage)
    async with in_terminal("top", url) as terminal:
        await terminal.shows("q quit")
        terminal.press("\x1a")
        await terminal.writes("\x1b[?1049l")
        await terminal.stopped()
        assert terminal.is_as_before
        terminal.forget()
        terminal.send(signal.SIGCONT)
        await terminal.writes("\x1b[?1049h")
        await terminal.shows("2 requests")
        terminal.press("q")
        assert await terminal.ended() == 0


async def test_a_router_that_goes_away_leaves_its_last_figures_and_one_that_comes_back_is_seen(stage: Stage) -> None:
    router, url = await served(stage)
    async with in_terminal("top", "--interval", "0.2", url, columns=120) as terminal:
        await terminal.shows("2 requests")
        open_settings = router.house.settings
        router.house.settings = open_settings.model_copy(update={"admin_token": SecretStr("new")})
        await terminal.shows(r"no answer since \d\d:\d\d:\d\d \(the admin port wants its token.*2 requests")
        router.house.settings = open_settings
        terminal.forget()
        await terminal.shows(r"up \d+.*(?<!figures)\[5m\].* 2 requests")


async def test_a_router_that_is_stopped_is_shown_as_away(stage: Stage) -> None:
    router, url = await served(stage)
    async with in_terminal("top", "--interval", "0.2", url, columns=120) as terminal:
        await terminal.shows("2 requests")
        await router.stop()
        await terminal.shows(r"no answer since \d\d:\d\d:\d\d \(connection refused\).*2 requests")
        terminal.press("q")
        assert await terminal.ended() == 0
