"""`warmroute serve --record`: begun by reloads, flushed at the stop, one key for all workers, no word of anybody."""

from __future__ import annotations

import asyncio
import json
import signal
from base64 import b64decode
from pathlib import Path
from typing import Any

from router.replay.traces.formats import read_trace
from tests.redis_server import running_redis
from tests.rig.client import CHAT, chat, request
from tests.rig.served import serving
from tests.rig.stage import Stage

SECRET = "quicksilver"
"""Stands in everything that a client says here."""

LONG = f"{SECRET} is what this is about. " * 40


async def read(path: Path) -> list[dict[str, Any]]:
    text = await asyncio.to_thread(path.read_text)
    return [json.loads(line) for line in text.splitlines()]


def said(text: str, session: str | None = None, **fields: Any) -> bytes:
    body = {"model": "sim-model", "max_tokens": 4, "messages": [{"role": "user", "content": text}]} | fields
    return request(CHAT, body, headers=[] if session is None else [("x-session-id", session)])


async def test_every_form_of_request_is_recorded_and_nothing_that_is_said(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "traffic"
    router = await stage.router(await stage.replica(), record=path)
    await stage.ask(router, said(LONG, f"{SECRET}-session"))
    await stage.ask(router, said(LONG, f"{SECRET}-session", stream=True))
    await stage.ask(router, request("/v1/completions", {"model": "sim-model", "prompt": LONG, "max_tokens": 4}))
    await stage.ask(router, request("/v1/embeddings", {"model": "sim-model", "input": LONG}))
    await stage.ask(router, said("short"))
    await stage.ask(router, said(LONG, model=SECRET))
    await router.idle()
    await router.house.recording.close()
    text = await asyncio.to_thread(path.read_text)
    for word in (SECRET, "sim-model", router.id_of(next(iter(router.house.endpoints.values()))), "127.0.0.1"):
        assert word not in text
    opening, first, again, completion, embedding, short, refused = await read(path)
    assert opening["replicas"] == 1
    assert len(b64decode(first["hashes"])) == 8 * len(first["ends"])
    assert first["ends"][-1] == first["input_length"]
    for name in ("hashes", "ends", "hash_ids", "session", "model", "replica"):
        assert first[name] == again[name]
    assert first["output_length"] == 4
    assert 1 <= again["output_length"] <= 6, "a stream whose client asked for no usage: counted by its pieces"
    assert completion["hash_ids"] != first["hash_ids"]
    assert embedding["hashes"]
    assert embedding["output_length"] == 0
    assert (refused["status"], refused["output_length"]) == (404, 0)
    assert (short["hashes"], short["ends"]) == ("", [])
    assert len(read_trace(text.splitlines()).requests) == 5


async def test_the_admin_port_says_whether_one_runs(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "traffic"
    router = await stage.router(await stage.replica(), record=path)
    admin = await router.admin()
    assert (await admin.get("/api/overview")).json()["recording"] == {
        "file": str(path), "written": 0, "dropped": 0, "trouble": None
    }  # fmt: skip
    await stage.ask(router, said(LONG))
    await router.idle()
    await router.until(lambda: router.house.recording.counts.written == 1)
    metrics = (await admin.get("/metrics")).text
    assert 'warmroute_recorded_requests_total{result="written"} 1.0' in metrics
    assert "warmroute_recording 1.0" in metrics
    await router.house.recording.close()
    assert (await admin.get("/api/overview")).json()["recording"] is None
    assert "warmroute_recording 0.0" in (await admin.get("/metrics")).text


async def test_a_stop_flushes_and_a_reload_begins_and_ends_one(stage: Stage, tmp_path: Path) -> None:
    replica, config = await stage.replica(), tmp_path / "warmroute.toml"
    config.write_text("")
    first, second = tmp_path / "first", tmp_path / "second"
    async with serving("--replica", replica.url, "--config", str(config)) as served:
        await stage.ask(served, said(LONG))
        for path in (first, second):
            config.write_text(f'record = "{path}"\n')
            assert (await served.admin("POST", "/api/reload")).json()["changed"] == ["record"]
            await stage.ask(served, said(LONG))
        config.write_text(f'record = "{second}"\nrecord_files = 1\n')
        await served.admin("POST", "/api/reload")
        await stage.ask(served, said(LONG))
        served.send(signal.SIGTERM)
        code, err = await served.ended()
    assert code == 0
    assert "recorded" not in err
    (_, one), (_, *two) = await read(first), await read(second)
    assert len(two) == 2
    assert two[0]["hashes"] == two[1]["hashes"] != one["hashes"], "each recording has a key of its own"


async def test_workers_have_files_of_their_own_and_one_key(stage: Stage, tmp_path: Path) -> None:
    replica, path = await stage.replica(), tmp_path / "traffic"
    with running_redis() as url:
        async with serving("--redis", url, "--replica", replica.url, "--record", str(path), workers=2) as served:
            for admin_port in served.admin_ports:
                with served.only(admin_port):
                    await stage.ask(served, said(LONG, "one"))
            served.send(signal.SIGTERM)
            code, _ = await served.ended()
    assert code == 0
    (opening, one), (other_opening, other) = [await read(path.with_name(f"traffic.w{worker}")) for worker in (1, 2)]
    assert opening["started"] == other_opening["started"]
    for name in ("hashes", "session", "model", "replica"):
        assert one[name] == other[name]
    assert one["timestamp"] < other["timestamp"]


async def test_chats_without_a_prompt_of_a_block_are_recorded_too(stage: Stage, tmp_path: Path) -> None:
    router = await stage.router(await stage.replica(), record=tmp_path / "traffic")
    await stage.ask(router, chat())
    await router.idle()
    await router.house.recording.close()
    _, line = await read(tmp_path / "traffic")
    assert (line["hashes"], line["status"]) == ("", 200)
    assert line["hash_ids"] == [0]
    assert "session" not in line
