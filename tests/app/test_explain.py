"""`warmroute explain` of one request: a live router's word on it, and files that are no requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from router.app.dashboard.causes import words_of_causes
from router.app.terminal.bodies import MAX_BYTES
from router.core.misses.types import Cause
from tests.app.test_top import url_of, warmroute
from tests.rig.client import CHAT, request
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.talks import SYSTEM, text
from tests.rig.terminal import in_terminal


def body(messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    return {"model": "sim-model", "messages": messages, "max_tokens": 20} | fields


async def chatted(stage: Stage, **settings: Any) -> tuple[Router, str, list[dict[str, Any]]]:
    """A router that has answered two turns; its admin port; the messages of the third."""
    router = await stage.router(*await stage.replicas(2), **settings)
    messages = [{"role": "system", "content": SYSTEM}]
    for turn in range(2):
        messages.append({"role": "user", "content": text(turn)})
        answer = await stage.ask(router, request(CHAT, body(messages)))
        messages.append({"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]})
    await router.idle()
    return router, await url_of(router), [*messages, {"role": "user", "content": text(9)}]


def saved(folder: Path, content: Any, name: str = "request.json") -> str:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    (folder / name).write_bytes(data)
    return str(folder / name)


async def explain(*arguments: str, **variables: str) -> tuple[int, str, str]:
    return await warmroute("explain", *arguments, **variables)


async def refused(*arguments: str, **variables: str) -> str:
    code, out, err = await explain(*arguments, **variables)
    assert (code, out) == (2, ""), err
    assert err.startswith("warmroute: ")
    assert err.count("\n") == 1
    return err


# What the router says


async def test_the_next_turn_of_a_chat_will_hit(stage: Stage, tmp_path: Path) -> None:
    router, url, messages = await chatted(stage)
    code, out, err = await explain("--admin", url, saved(tmp_path, body(messages)))
    assert (code, err) == (0, "")
    last = (await (await router.admin()).get("/api/decisions?limit=1")).json()[0]
    home = last["decision"]["replica"]
    assert f"goes to  {home} (warm); its home is {home}" in out
    assert f"turn 3 of session {last['turn']['session']}" in out
    assert ", 0 lost" in out
    assert "cure" not in out
    rows = [line.split() for line in out.splitlines() if line.split()[1:2] and line.split()[1][:1].isdigit()]
    assert [row[0] for row in rows][:1] == [home]  # the best first
    head = next(line.split() for line in out.splitlines() if line.split()[:1] == ["replica"])
    assert head == ["replica", "total", "queue", "own", "balance", "evicted", "streams", "cached", "tokens"]
    assert {len(row) for row in rows if row[0] == home} == {len(head) - 1}  # one heading is two words
    assert {row[0] for row in rows} >= {replica.replica_id for replica in router.house.fleet}
    assert len((await (await router.admin()).get("/api/decisions")).json()) == 2  # nothing was sent


async def test_a_changed_system_prompt_is_named_with_its_cure(stage: Stage, tmp_path: Path) -> None:
    _, url, messages = await chatted(stage)
    messages[0] = {"role": "system", "content": "Be brief. " + SYSTEM}
    code, out, _ = await explain("--admin", url, saved(tmp_path, body(messages)), COLUMNS="200")
    assert code == 1
    assert "cause    system-changed" in out
    assert "changed  messages[0] (system)" in out
    assert f"cure     {words_of_causes()[Cause.SYSTEM_CHANGED].cure}" in out


async def test_a_new_chat_loses_nothing(stage: Stage, tmp_path: Path) -> None:
    router = await stage.router(await stage.replica())
    path = saved(tmp_path, body([{"role": "user", "content": text(1)}]))
    code, out, _ = await explain("--admin", await url_of(router), path)
    assert code == 0
    assert "(new); it has no home yet" in out
    assert "cause    first-seen" in out


async def test_json_is_the_answer_of_the_router(stage: Stage, tmp_path: Path) -> None:
    router, url, messages = await chatted(stage)
    code, out, _ = await explain("--json", "--admin", url, saved(tmp_path, body(messages)))
    asked = await (await router.admin()).post("/api/explain", json=body(messages))
    said, known = json.loads(out), asked.json()
    for passing in (said["turn"], known["turn"]):
        del passing["idle_s"]
    assert code == 0
    assert (said["turn"], said["replica"], said["blocks"]) == (known["turn"], known["replica"], known["blocks"])


async def test_a_session_header_counts_as_in_a_request(stage: Stage, tmp_path: Path) -> None:
    router, url, _ = await chatted(stage, session_header=("x-chat",))
    asked = body([{"role": "user", "content": text(5)}])
    await stage.ask(router, request(CHAT, asked, headers=[("x-chat", "mine")]))
    await router.idle()
    path = saved(tmp_path, body([{"role": "user", "content": text(6)}]))
    assert "(session)" in (await explain("--admin", url, "-H", "X-Chat: mine", path))[1]
    assert "(session)" not in (await explain("--admin", url, path))[1]


async def test_another_path_has_another_shape(stage: Stage, tmp_path: Path) -> None:
    _, url, _ = await chatted(stage)
    path = saved(tmp_path, {"model": "sim-model", "prompt": text(3)})
    assert "completions, 1 block," in (await explain("--admin", url, "--path", "/v1/completions", path))[1]
    assert "not read" in (await explain("--admin", url, path, "--path", "/v1/audio/speech"))[1]


async def test_a_byte_order_mark_is_left_out_and_said(stage: Stage, tmp_path: Path) -> None:
    _, url, messages = await chatted(stage)
    marked = saved(tmp_path, b"\xef\xbb\xbf" + json.dumps(body(messages)).encode())
    code, out, err = await explain("--admin", url, marked)
    assert (code, "(warm)" in out) == (0, True)
    assert "begins with a byte order mark, which engines refuse" in err


async def test_a_request_comes_from_standard_input_as_well(stage: Stage, tmp_path: Path) -> None:
    _, url, messages = await chatted(stage)
    path = saved(tmp_path, body(messages))
    async with in_terminal("explain", "--admin", url, path) as terminal:
        await terminal.shows(r"goes to +r-\w+ \(warm\).*turn 3 of session")
        assert await terminal.ended() == 0
        assert "\x1b[1" in terminal.written
    async with in_terminal("explain", "--admin", url, "-") as terminal:
        terminal.press(json.dumps(body([{"role": "user", "content": "short"}])) + "\n\x04")
        await terminal.shows(r"standard input.*shorter than one block")
        assert await terminal.ended() == 0


# What can't be explained


async def test_a_model_that_nobody_serves_is_the_routers_word(stage: Stage, tmp_path: Path) -> None:
    router = await stage.router(await stage.replica(), watched=True)
    await router.until(lambda: bool(router.house.models.merged()["data"]))
    path = saved(tmp_path, body([], model="nope\x1b[2J"))
    err = await refused("--admin", await url_of(router), path)
    assert "no replica serves the model nope?[2J" in err


async def test_no_replica_is_the_routers_word(stage: Stage, tmp_path: Path) -> None:
    url = await url_of(await stage.router())
    assert "no replica is configured" in await refused("--admin", url, saved(tmp_path, body([])))


async def test_the_token_is_asked_for(stage: Stage, tmp_path: Path) -> None:
    _, url, messages = await chatted(stage, admin_token=SecretStr("open sesame"))
    path = saved(tmp_path, body(messages))
    assert "set WARMROUTE_ADMIN_TOKEN" in await refused("--admin", url, path)
    assert (await explain("--admin", url, path, WARMROUTE_ADMIN_TOKEN="open sesame"))[0] == 0


async def test_nobody_listens(unused_tcp_port: int, tmp_path: Path) -> None:
    err = await refused("--admin", f"127.0.0.1:{unused_tcp_port}", saved(tmp_path, body([])))
    assert "connection refused" in err


async def test_the_client_port_is_not_the_admin_port(stage: Stage, tmp_path: Path) -> None:
    router = await stage.router(await stage.replica())
    assert "not the admin port of a router" in await refused("--admin", router.url, saved(tmp_path, body([])))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b'{"model": }', "not JSON: expecting value in line 1, column 11"),
        (b'{\n"model":\n', "not JSON: expecting value in line 3"),
        (b"[1, 2]", "JSON, but no object"),
        (b'"text"', "JSON, but no object"),
        (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
        (b"\xff\xfe{\0}\0", "is UTF-16, and JSON is UTF-8"),
        (b'{"a": 1}\n{"b": 2', "line 2 of"),
        (b'{"a": 1}\n[2]\n', "line 2 of"),
        (b'{"a":' * 100_000, "nested too deeply"),
    ],
)
async def test_what_is_no_request(content: bytes, says: str, tmp_path: Path) -> None:
    err = await refused(saved(tmp_path, content))
    assert says in err
    assert "request.json" in err


async def test_a_file_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "long").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    assert "has more than 256 MiB" in await refused(str(tmp_path / "long"))


async def test_files_that_can_not_be_read(tmp_path: Path) -> None:
    assert "no such file or directory" in await refused(str(tmp_path / "nothing"))
    assert "is a directory" in await refused(str(tmp_path))
    assert "standard input is empty" in await refused("-")


async def test_what_is_no_header(tmp_path: Path) -> None:
    assert "is no header" in await refused("-H", "x-chat", saved(tmp_path, body([])))


def test_every_cause_has_a_cure() -> None:
    assert set(words_of_causes()) == set(Cause)
