"""Replicas put in, taken out and drained through the admin API."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from router.app.roster.following import follow
from router.app.roster.members import ADMIN, STATIC
from router.core.health import State
from router.core.orders import MAX_ORDERS, Kind
from router.ports import Endpoint
from tests.app.test_admin import samples, total
from tests.rig.client import CHAT, chat, request
from tests.rig.stage import Stage

ELSEWHERE = "http://gpu-9:8000"
STORY = "a long story, " * 200


def error(answer: httpx.Response, status: int) -> str:
    """The message of an answer that is an error, which must have OpenAI's form."""
    assert answer.status_code == status, answer.text
    body = answer.json()["error"]
    assert set(body) == {"message", "type", "param", "code"}
    assert (body["type"], body["code"]) == ("invalid_request_error", status)
    return str(body["message"])


async def names(admin: httpx.AsyncClient) -> dict[str | None, str]:
    """Name -> URL of all replicas."""
    return {replica["name"]: replica["url"] for replica in (await admin.get("/api/replicas")).json()}


# Put


async def test_a_replica_that_is_put_in_serves_and_is_shown(stage: Stage) -> None:
    router, replica = await stage.router(), await stage.replica()
    admin = await router.admin()
    described = {"url": replica.url.upper(), "models": ["sim-model"], "weight": 2, "labels": {"rack": "b", "zone": "a"}}
    put = await admin.put("/api/replicas/gpu-5", json=described)
    assert put.status_code == 201
    ident = put.json()["id"]
    assert put.json() == {
        "id": ident, "name": "gpu-5", "url": replica.url, "rank": None, "state": "joining", "drained_by": None,
        "sources": [ADMIN], "running": 0, "running_elsewhere": 0,
    }  # fmt: skip
    answer = await stage.ask(router, chat())
    assert (answer.status, answer.replica) == (200, ident)
    for path in ("gpu-5", ident):
        shown = (await admin.get(f"/api/replicas/{path}")).json()
        assert (shown["id"], shown["name"], shown["state"], shown["weight"]) == (ident, "gpu-5", "ready", 2.0)
        assert shown["labels"] == {"rack": "b", "zone": "a"}
    assert (await admin.get("/api/fleet")).json()["replicas"] == [shown] == (await admin.get("/api/replicas")).json()


async def test_a_rank_of_an_engine_is_a_replica_of_its_own(stage: Stage) -> None:
    admin = await (await stage.router()).admin()
    for rank in (0, 1):
        assert (await admin.put(f"/api/replicas/big-{rank}", json={"url": ELSEWHERE, "rank": rank})).status_code == 201
    first, second = (await admin.get("/api/replicas")).json()
    assert (first["rank"], second["rank"], first["url"]) == (0, 1, second["url"])
    assert first["id"] != second["id"]


async def test_putting_the_same_again_changes_nothing_and_other_words_change_it_in_place(stage: Stage) -> None:
    router = await stage.router()
    admin = await router.admin()
    body: dict[str, Any] = {"url": ELSEWHERE}
    ident = (await admin.put("/api/replicas/a", json=body)).json()["id"]
    books, orders = router.books(ELSEWHERE), router.house.roster.orders.all
    again = await admin.put("/api/replicas/a", json=body)
    assert (again.status_code, again.json()["id"]) == (200, ident)
    assert router.house.roster.orders.all == orders
    for path, weight in (("a", 3.0), (ident, 4.0)):
        assert (await admin.put(f"/api/replicas/{path}", json=body | {"weight": weight})).status_code == 200
        assert router.books(ELSEWHERE) is books
        assert books.weight == weight
    assert await names(admin) == {"a": ELSEWHERE}


async def test_a_name_is_no_other_replicas(stage: Stage) -> None:
    router = await stage.router("http://gpu-1:8000")
    admin, static = await router.admin(), router.id_of("http://gpu-1:8000")
    await admin.put("/api/replicas/a", json={"url": ELSEWHERE})
    moved = error(await admin.put("/api/replicas/a", json={"url": "http://gpu-8:8000"}), 409)
    assert ELSEWHERE in moved
    assert "delete it first" in moved
    error(await admin.put("/api/replicas/a", json={"url": ELSEWHERE, "rank": 0}), 409)
    assert "was put in as a" in error(await admin.put("/api/replicas/b", json={"url": ELSEWHERE}), 409)
    assert "--replica" in error(await admin.put(f"/api/replicas/{static}", json={"url": "http://gpu-1:8000"}), 409)
    error(await admin.put("/api/replicas/r-00000000", json={"url": ELSEWHERE}), 404)
    assert await names(admin) == {None: "http://gpu-1:8000", "a": ELSEWHERE}


@pytest.mark.parametrize("name", ["10.0.0.1", "gpu:8000", "GPU", "-a", "a-", "a_b", "a" * 64, "%20", "é"])
async def test_a_name_can_be_no_address(stage: Stage, name: str) -> None:
    admin = await (await stage.router()).admin()
    error(await admin.put(f"/api/replicas/{name}", json={"url": ELSEWHERE}), 422)
    assert await names(admin) == {}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "url"), ({"url": "gpu-1:8000"}, "url"), ({"url": "http://user:pw@gpu-1:8000"}, "url"),
        ({"url": "http://gpu-1:8000/v1"}, "url"), ({"url": ELSEWHERE, "weight": 0}, "weight"),
        ({"url": ELSEWHERE, "weight": "heavy"}, "weight"), ({"url": ELSEWHERE, "rank": -1}, "rank"),
        ({"url": ELSEWHERE, "uid": "x"}, "uid"), ({"url": ELSEWHERE, "models": [""]}, "models.0"),
        ({"url": ELSEWHERE, "labels": {"a": 1}}, "labels.a"),
    ],
)  # fmt: skip
async def test_what_can_be_no_replica_is_refused_by_its_field(stage: Stage, body: dict[str, Any], param: str) -> None:
    admin = await (await stage.router()).admin()
    answer = await admin.put("/api/replicas/a", json=body)
    message = error(answer, 422)
    assert answer.json()["error"]["param"] == param
    assert message.startswith(f"{param}: ")
    assert "pw" not in message
    assert await names(admin) == {}


async def test_what_is_put_in_counts_before_what_others_say(stage: Stage) -> None:
    router = await stage.router(ELSEWHERE + "?weight=2")
    admin, books = await router.admin(), router.books(ELSEWHERE)
    put = await admin.put("/api/replicas/mine", json={"url": ELSEWHERE, "weight": 7})
    assert put.json()["sources"] == [ADMIN, STATIC]
    assert (router.books(ELSEWHERE), books.weight) == (books, 7.0)
    gone = (await admin.delete("/api/replicas/mine")).json()
    assert (gone["state"], gone["sources"]) == ("joining", [STATIC])
    assert (router.books(ELSEWHERE), books.weight) == (books, 2.0)


async def test_there_is_a_limit_to_orders(stage: Stage) -> None:
    router = await stage.router()
    admin = await router.admin()
    for number in range(MAX_ORDERS):
        router.house.roster.orders.give(Kind.DRAIN, f"r-{number}", False, int(time.time() * 1000))
    error(await admin.put("/api/replicas/one-more", json={"url": ELSEWHERE}), 409)
    assert await names(admin) == {}


# Delete


async def test_a_deleted_replica_is_gone_and_its_stream_ends_as_it_would(stage: Stage) -> None:
    replicas = await stage.replicas(2, time_scale=1.0)
    router = await stage.router(replicas[0])
    admin = await router.admin()
    await admin.post(f"/api/replicas/{router.id_of(replicas[0])}/drain")
    ident = (await admin.put("/api/replicas/a", json={"url": replicas[1].url})).json()["id"]
    client = await stage.client(router)
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": 20, "ignore_eos": True}
    client.send(request(CHAT, body))
    answer = await client.head()
    await client.chunk(answer)
    assert answer.replica == ident
    gone = (await admin.delete(f"/api/replicas/{ident}")).json()
    assert (gone["state"], gone["sources"], gone["running"]) == ("gone", [], 1)
    error(await admin.get("/api/replicas/a"), 404)
    error(await admin.delete("/api/replicas/a"), 404)
    await client.rest(answer)
    assert answer.events()[-1] == "[DONE]"
    await router.idle()
    found = await samples(router)
    assert not any(ident in labels.values() for rows in found.values() for labels, _ in rows)
    assert total(found["warmroute_requests_total"], replica="gone", status="200") == 1


async def test_a_replica_that_comes_back_at_once_is_cold_and_old_requests_do_not_touch_it(stage: Stage) -> None:
    replica = await stage.replica(time_scale=1.0)
    router = await stage.router()
    admin = await router.admin()
    ident = (await admin.put("/api/replicas/a", json={"url": replica.url})).json()["id"]
    client = await stage.client(router)
    client.send(chat(STORY, stream=True, max_tokens=20, ignore_eos=True, headers=[("x-session-id", "s")]))
    answer = await client.head()
    await client.chunk(answer)
    await admin.delete("/api/replicas/a")
    assert (await admin.put("/api/replicas/a", json={"url": replica.url})).json()["id"] == ident
    books = router.books(replica)
    assert (books.ledger.streams, len(books.mirror)) == (0, 0)
    await client.rest(answer)
    assert answer.events()[-1] == "[DONE]"
    await router.until(lambda: not router.house.plane.active)
    assert (books.ledger.streams, books.ledger.uncached_tokens, len(books.mirror)) == (0, 0, 0)
    assert books.health.state is State.JOINING
    later = await client.ask(chat(STORY, max_tokens=1))
    assert (later.status, later.reason) == (200, "new")


async def test_what_others_name_is_not_deleted_here(stage: Stage) -> None:
    router = await stage.router(ELSEWHERE)
    admin = await router.admin()
    message = error(await admin.delete(f"/api/replicas/{router.id_of(ELSEWHERE)}"), 409)
    assert "--replica" in message
    assert "drain" in message
    assert len(router.house.fleet) == 1


async def test_a_drain_ends_with_the_replica_that_was_put_in(stage: Stage) -> None:
    router = await stage.router()
    admin = await router.admin()
    await admin.put("/api/replicas/a", json={"url": ELSEWHERE})
    await admin.post("/api/replicas/a/drain")
    await admin.delete("/api/replicas/a")
    assert (await admin.put("/api/replicas/a", json={"url": ELSEWHERE})).json()["state"] == "joining"


# Drain


async def test_a_drained_replica_gets_nothing_new_and_says_what_still_runs(stage: Stage) -> None:
    replicas = await stage.replicas(2, time_scale=1.0)
    router = await stage.router(*replicas)
    admin, client = await router.admin(), await stage.client(router)
    client.send(chat(STORY, stream=True, max_tokens=20, ignore_eos=True))
    answer = await client.head()
    await client.chunk(answer)
    home = answer.replica
    drained = (await admin.post(f"/api/replicas/{home}/drain")).json()
    assert (drained["state"], drained["drained_by"], drained["running"]) == ("draining", "operator", 1)
    asked = [await stage.ask(router, chat(f"{number}: {STORY}", max_tokens=1)) for number in range(4)]
    assert home not in {other.replica for other in asked}
    moved = await stage.ask(router, chat(STORY, max_tokens=1))
    assert (moved.status, moved.replica != home, moved.reason) == (200, True, "drained")
    assert not answer.body.endswith(b"[DONE]\n\n")
    await client.rest(answer)
    assert answer.events()[-1] == "[DONE]"
    await router.idle()
    assert (await admin.post(f"/api/replicas/{home}/drain")).json()["running"] == 0
    back = (await admin.post(f"/api/replicas/{home}/undrain")).json()
    assert (back["state"], back["drained_by"]) == ("joining", None)


async def test_draining_twice_is_draining_once(stage: Stage) -> None:
    router = await stage.router(ELSEWHERE)
    admin, path = await router.admin(), f"/api/replicas/{router.id_of(ELSEWHERE)}"
    first = (await admin.post(f"{path}/drain")).json()
    orders = router.house.roster.orders.all
    assert (await admin.post(f"{path}/drain")).json() == first
    assert router.house.roster.orders.all == orders
    for _ in range(2):
        assert (await admin.post(f"{path}/undrain")).json()["state"] == "joining"


async def test_what_its_source_drains_stays_drained(stage: Stage) -> None:
    router = await stage.router(ELSEWHERE)
    admin, path = await router.admin(), f"/api/replicas/{router.id_of(ELSEWHERE)}"
    router.house.roster.put(STATIC, [Endpoint(ELSEWHERE, leaving=True)])
    follow(router.house)
    for verb, who in (("undrain", "source"), ("drain", "operator"), ("undrain", "source")):
        standing = (await admin.post(f"{path}/{verb}")).json()
        assert (standing["state"], standing["drained_by"]) == ("draining", who)


@pytest.mark.parametrize("path", ["nobody", "r-00000000", "10.0.0.1"])
async def test_who_is_not_there_can_not_be_drained(stage: Stage, path: str) -> None:
    admin = await (await stage.router(ELSEWHERE)).admin()
    for verb in ("drain", "undrain"):
        assert path in error(await admin.post(f"/api/replicas/{path}/{verb}"), 404)
    error(await admin.get(f"/api/replicas/{path}"), 404)


# Browsers


async def test_pages_of_other_sites_can_not_change_the_fleet(stage: Stage) -> None:
    router = await stage.router(ELSEWHERE)
    admin, path = await router.admin(), f"/api/replicas/{router.id_of(ELSEWHERE)}/drain"
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        assert (await admin.post(path, headers={"sec-fetch-site": site})).status_code == status
