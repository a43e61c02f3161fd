"""What a router shows and writes of conversations: no word of them, and no session id of the client's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from router.app.keeping import Keeper
from tests.rig.client import CHAT, request
from tests.rig.stage import Stage

SECRET = "quicksilver"
"""Stands in everything that a client says here."""

SESSION = f"{SECRET}-session"


def body(turn: int) -> dict[str, Any]:
    """A turn whose head changes each time, so that there is something to explain."""
    return {
        "model": "sim-model",
        "max_tokens": 20,
        "session_id": SESSION,
        "tools": [{"type": "function", "function": {"name": f"{SECRET}_{turn}", "description": f"{SECRET} " * 40}}],
        "messages": [
            {"role": "system", "content": f"{SECRET} number {turn}. " * 60},
            *({"role": "user", "content": f"{SECRET} question {number} " * 20} for number in range(turn + 1)),
        ],
    }


async def test_nothing_that_is_said_is_shown_or_kept(
    stage: Stage, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    state = tmp_path / "state"
    router = await stage.router(*await stage.replicas(2), state_file=state, log_requests=True)
    for turn in range(3):
        answer = await stage.ask(
            router, request(CHAT, body(turn), headers=[("x-warmroute-explain", "1"), ("x-session-id", SESSION)])
        )
        assert answer.status == 200
        said = answer.header("x-warmroute-explain") or ""
        assert "session=" in said
        assert SECRET not in said
    await router.idle()
    admin = await router.admin()
    (session, *_) = (await admin.get("/api/sessions")).json()
    assert session["turns"] == 3, "the client's id holds them together"
    schema = (await admin.get("/openapi.json")).json()
    paths = [path for path, methods in schema["paths"].items() if "get" in methods and path != "/api/events"]
    assert {"/metrics", "/api/overview", "/api/decisions", "/api/misses", "/api/sessions/{id}"} <= set(paths)
    shown = {}
    for path in paths:
        if "{id}" in path and "session" not in path:
            continue
        shown[path] = (await admin.get(path.replace("{id}", session["session"]))).text
    shown["/api/explain"] = (await admin.post("/api/explain", json=body(3))).text
    assert json.loads(shown["/api/explain"])["turn"]["cause"], "there is something to be told"
    async with admin.stream("GET", "/api/events") as events:
        lines = events.aiter_lines()
        shown["/api/events"] = "".join([await anext(lines), await anext(lines)])
    assert await Keeper(router.house, state).write_if_changed()
    assert router.house.request_log is not None
    router.house.request_log.flush()
    log = capfdbinary.readouterr().err
    assert log.count(b"request_finished") == 3
    for where, text in shown.items():
        assert SECRET not in text, where
    assert SECRET.encode() not in log
    assert SECRET.encode() not in state.read_bytes()
