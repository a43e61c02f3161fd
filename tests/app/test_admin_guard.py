"""The admin port wants its token where there is one, and does nothing at the word of a foreign web page."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pydantic import SecretStr

from router.app.admin.guard import is_loopback, warn_if_open
from router.app.settings.model import Settings
from tests.rig.stage import Stage

TOKEN = "a token of some length"


@pytest.mark.parametrize("given", ["", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN, "Bearer"])
async def test_without_the_token_everything_but_metrics_is_401(stage: Stage, given: str) -> None:
    router = await stage.router(await stage.replica(), admin_token=TOKEN)
    admin = await router.admin()
    headers = {"authorization": given} if given else {}
    for path in ("/api/fleet", "/api/decisions", "/docs", "/openapi.json", "/nowhere"):
        answer = await admin.get(path, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert TOKEN not in answer.text
    assert (await admin.post("/api/explain", json={}, headers=headers)).status_code == 401
    assert (await admin.get("/metrics", headers=headers)).status_code == 200


async def test_with_the_token_all_is_answered(stage: Stage) -> None:
    router = await stage.router(await stage.replica(), admin_token=TOKEN)
    admin = await router.admin()
    for scheme in ("Bearer", "bearer"):
        answer = await admin.get("/api/fleet", headers={"authorization": f"{scheme} {TOKEN}"})
        assert answer.status_code == 200


async def test_without_a_token_in_the_settings_none_is_asked_for(stage: Stage) -> None:
    router = await stage.router(await stage.replica())
    assert (await (await router.admin()).get("/api/fleet")).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [{"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}],
    ids=["origin", "no origin", "fetch"],
)
async def test_a_foreign_page_can_change_nothing(stage: Stage, headers: dict[str, str]) -> None:
    router = await stage.router(await stage.replica())
    admin = await router.admin()
    assert (await admin.post("/api/explain", json={"model": "m"}, headers=headers)).status_code == 403
    own = {"origin": str(admin.base_url).rstrip("/"), "sec-fetch-site": "same-origin"}
    assert (await admin.post("/api/explain", json={"model": "m"}, headers=own)).status_code == 200


@pytest.mark.parametrize(("host", "status"), [("evil.example:9090", 403), ("localhost:1", 200), ("[::1]:9090", 200)])
async def test_a_name_that_was_pointed_here_is_refused_where_the_port_is_local_and_open(
    stage: Stage, host: str, status: int
) -> None:
    admin = await (await stage.router(await stage.replica())).admin()
    assert (await admin.get("/api/fleet", headers={"host": host})).status_code == status
    assert (await admin.get("/metrics", headers={"host": host})).status_code == 200


@pytest.mark.parametrize(
    "settings", [{"admin_token": TOKEN}, {"admin_host": "0.0.0.0"}], ids=["with a token", "where it is not local"]
)
async def test_any_name_will_do_elsewhere(stage: Stage, settings: dict[str, Any]) -> None:
    admin = await (await stage.router(await stage.replica(), **settings)).admin()
    headers = {"host": "router.internal:9090", "authorization": f"Bearer {TOKEN}"}
    assert (await admin.get("/api/fleet", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("router.internal", False)],
)  # fmt: skip
def test_an_open_admin_port_that_others_reach_is_warned_of(
    host: str, local: bool, caplog: pytest.LogCaptureFixture
) -> None:
    assert is_loopback(host) is local
    warn_if_open(Settings(admin_host=host))
    assert [record.levelno for record in caplog.records] == ([] if local else [logging.WARNING])
    caplog.clear()
    warn_if_open(Settings(admin_host=host, admin_token=SecretStr(TOKEN)))
    assert not caplog.records
