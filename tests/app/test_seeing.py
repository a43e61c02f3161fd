"""What the admin API shows of the past: numbers that agree with what was decided and with the engines' own."""

from __future__ import annotations

from typing import Any

import pytest

from router.app.house import remove_replica
from router.core.misses.types import Cause, Change
from router.sim.faults import Fault, FaultKind
from tests.adapters.history.counted import turn
from tests.adapters.records import decision, record
from tests.rig.client import chat, request
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.talks import TALKS

WINDOWS = ("5m", "1h", "24h")


async def get(router: Router, path: str, **query: Any) -> Any:
    answer = await (await router.admin()).get(path, params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    return answer.json()


async def driven(stage: Stage, router: Router, talks: int = 6, turns: int = 3) -> None:
    """Some chats, streamed and not, and a few mistakes."""
    client = await stage.client(router)
    for kind in ("chat", "completions"):
        begun = [TALKS[kind](number) for number in range(talks)]
        for _ in range(turns):
            for talk in begun:
                talk.take(await client.ask(request(talk.path, {"model": "sim-model"} | talk.ask())))
    await client.ask(chat(model="nope"))
    await client.ask(chat("hi", max_tokens=-1))


def sums(decisions: list[dict[str, Any]]) -> dict[str, Any]:
    """What an overview must say of these decisions."""
    good = [row for row in decisions if row["status"] < 400]
    reported = [row for row in good if row["usage"]["cached_tokens"] is not None]
    return {
        "failed": sum(row["status"] >= 500 for row in decisions),
        "prompt_tokens": sum(row["usage"]["prompt_tokens"] or row["decision"]["prompt_tokens"] for row in good),
        "predicted_cached_tokens": sum(row["decision"]["matched_tokens"] for row in good),
        "reported_prompt_tokens": sum(row["usage"]["prompt_tokens"] for row in reported),
        "engine_cached_tokens": sum(row["usage"]["cached_tokens"] for row in reported),
    }


def part(shown: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    return {name: shown[name] for name in like}


async def test_the_numbers_are_those_of_the_decisions(stage: Stage) -> None:
    replicas = await stage.replicas(3)
    router = await stage.router(*replicas)
    await driven(stage, router)
    shown, decisions = await get(router, "/api/overview"), await get_decisions(router)
    whole = sums(decisions)
    assert whole["engine_cached_tokens"] > 5_000
    for name in WINDOWS:
        window = shown["windows"][name]
        assert part(window, whole) == whole
        assert window["requests"] == len(router.records.finished) == len(decisions) > 30
        assert window["hit_ratio"] == round(whole["engine_cached_tokens"] / whole["reported_prompt_tokens"], 4)
        assert window["predicted_ratio"] == round(whole["predicted_cached_tokens"] / whole["prompt_tokens"], 4)
        reasons = [row["decision"]["reason"] for row in decisions]
        assert window["reasons"] == {reason: reasons.count(reason) for reason in reasons}
        streamed = [row for row in decisions if row["streaming"] and row["ttft_s"] is not None]
        warm = [row["ttft_s"] for row in streamed if row["decision"]["matched_tokens"]]
        assert window["ttft"]["warm"]["count"] == len(warm)
        assert window["ttft"]["cold"]["count"] == len(streamed) - len(warm)
        assert sum(row["warm"]["count"] + row["cold"]["count"] for row in window["ttft_by_length"]) == len(streamed)
        assert window["phases"]["prefill"]["count"] == window["phases"]["decode"]["count"] == len(streamed)
    for row in shown["replicas"]:
        own = [one for one in decisions if one["decision"]["replica"] == row["id"]]
        assert part(row["windows"]["1h"], sums(own)) == sums(own)
        assert row["windows"]["1h"]["requests"] == len(own)
    assert set(shown["models"]) == {"sim-model"}, "the client's mistake is no model"
    assert part(shown["models"]["sim-model"]["24h"], whole) == whole


async def get_decisions(router: Router) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await (await router.admin()).get("/api/decisions")).json()
    return rows


async def test_the_numbers_are_those_of_the_engines(stage: Stage) -> None:
    replicas = await stage.replicas(3)
    router = await stage.router(*replicas)
    await driven(stage, router)
    shown = await get(router, "/api/overview")
    for replica in replicas:
        stats = replica.engine.stats
        row = next(row for row in shown["replicas"] if row["id"] == router.id_of(replica))
        assert row["windows"]["5m"]["reported_prompt_tokens"] == stats.prefix_queries_tokens > 0
        assert row["windows"]["5m"]["engine_cached_tokens"] == stats.prefix_hits_tokens > 0


async def test_columns_sum_up_to_the_overview(stage: Stage) -> None:
    router = await stage.router(*await stage.replicas(2))
    await driven(stage, router, talks=2)
    shown = await get(router, "/api/overview")
    for name in WINDOWS:
        columns = await get(router, "/api/history", window=name)
        for field in ("requests", "failed", "prompt_tokens", "engine_cached_tokens"):
            assert sum(value or 0 for value in columns[field]) == shown["windows"][name][field]
    assert (await get(router, "/api/history"))["window"] == "1h"
    assert (await (await router.admin()).get("/api/history?window=2h")).status_code == 422


async def test_errors_are_counted_by_their_code(stage: Stage) -> None:
    dead = await stage.replica()
    dead.faults.set(Fault(FaultKind.REFUSE))
    router = await stage.router(dead)
    await stage.ask(router, chat())
    window = (await get(router, "/api/overview"))["windows"]["5m"]
    assert (window["requests"], window["failed"], window["errors"]) == (1, 1, {"upstream_failed": 1})


async def test_a_row_of_the_overview_is_that_of_the_fleet_and_more(stage: Stage) -> None:
    replicas = await stage.replicas(2)
    router = await stage.router(*replicas)
    await stage.ask(router, chat("a long story, " * 200))
    shown, fleet = await get(router, "/api/overview"), (await (await router.admin()).get("/api/fleet")).json()
    assert {name: shown[name] for name in fleet if name != "replicas"} == part(fleet, {"policy": 0, "queue": 0} | {
        "routers": 0, "redis": 0
    })  # fmt: skip
    for row, known in zip(shown["replicas"], fleet["replicas"], strict=True):
        assert set(row) - set(known) == {"windows", "eviction_age_s"}
        mirror = row.pop("mirror")
        assert {"blocks": mirror["blocks"], "bytes": mirror["bytes"]} == known.pop("mirror")
        assert {name: row[name] for name in known} == known
    assert shown["version"]
    assert 0 < shown["uptime_s"] < 60


async def test_how_full_a_mirror_is_and_how_right(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    for _ in range(2):
        await stage.ask(router, chat("a long story, " * 200))
    row = (await get(router, "/api/overview"))["replicas"][0]
    assert (row["mirror"]["fill_ratio"], row["eviction_age_s"]) == (None, None), "nobody has read the engine's metrics"
    last = (await get_decisions(router))[0]
    wrong = abs(last["decision"]["matched_tokens"] - last["usage"]["cached_tokens"])
    assert row["mirror"]["error_ratio"] == round(wrong / row["windows"]["1h"]["reported_prompt_tokens"], 4)
    mirror = router.books(replica).mirror
    mirror.capacity_bytes = 2 * mirror.idle_bytes
    row = (await get(router, "/api/overview"))["replicas"][0]
    assert (row["mirror"]["fill_ratio"], row["eviction_age_s"]) == (0.5, None)
    mirror.capacity_bytes = mirror.idle_bytes
    row = (await get(router, "/api/overview"))["replicas"][0]
    assert row["mirror"]["fill_ratio"] == 1
    assert 0 <= row["eviction_age_s"] < 60


async def test_a_replica_that_left_is_not_shown_and_the_totals_stay(stage: Stage) -> None:
    stays, goes = await stage.replicas(2)
    router = await stage.router(stays, goes)
    for number in range(4):
        await stage.ask(router, chat(f"{number} a long story, " * 200))
    before = await get(router, "/api/overview")
    remove_replica(router.house, router.id_of(goes))
    after = await get(router, "/api/overview")
    assert [row["id"] for row in after["replicas"]] == [router.id_of(stays)]
    assert after["windows"]["1h"]["requests"] == before["windows"]["1h"]["requests"] == 4
    assert after["models"] == before["models"]


# Sessions


def told(router: Router, session: str, lost_tokens: int = 0, **fields: Any) -> None:
    """Have the router's observers told of a turn."""
    account = turn(session, fields.pop("number", 2), lost_tokens, **fields.pop("account", {}))
    router.house.plane.audience.requests_finished([record(turn=account, **fields)])


async def test_sessions_with_their_turns_and_what_they_missed(stage: Stage) -> None:
    router = await stage.router(await stage.replica())
    change = Change(Cause.STAMPED, 0, "system", 12)
    told(router, "s-1", number=1, model="a", request_id="one")
    told(router, "s-2", number=1, model="b", request_id="two")
    told(router, "s-1", 470, model="a", request_id="three", account={"cause": Cause.STAMPED, "change": change})
    listed = await get(router, "/api/sessions")
    assert [(row["session"], row["model"], row["turns"], row["cause"]) for row in listed] == [
        ("s-1", "a", 2, "stamped"), ("s-2", "b", 1, None),
    ]  # fmt: skip
    sums = (listed[0]["prompt_tokens"], listed[0]["cached_tokens"], listed[0]["lost_tokens"], listed[0]["replica"])
    assert sums == (1_000, 490, 470, "r-1")
    assert [row["session"] for row in await get(router, "/api/sessions", model="b")] == ["s-2"]
    assert [row["session"] for row in await get(router, "/api/sessions", limit=1)] == ["s-1"]
    shown = await get(router, "/api/sessions/s-1")
    assert (shown["session"], shown["model"]) == ("s-1", "a")
    first, second = shown["turns"]
    assert (first["request_id"], first["scores"], first["change"]) == ("one", [], None)
    assert second["change"] == {"cause": "stamped", "message": 0, "role": "system", "kept_tokens": 12}
    assert set(second) == {
        "session", "model", "number", "at_s", "request_id", "status", "replica", "reason", "home", "prompt_tokens",
        "matched_tokens", "cached_tokens", "history_tokens", "lost_tokens", "cause", "change", "idle_s", "ttft_s",
        "total_s", "scores",
    }  # fmt: skip
    (miss,) = await get(router, "/api/misses")
    assert miss == second


async def test_score_tables_are_those_of_the_decisions(stage: Stage) -> None:
    router = await stage.router(*await stage.replicas(3))
    await stage.ask(router, chat("a long story, " * 200))
    finished = router.records.finished[-1]
    told(router, "s-1", 5, decision=finished.decision)
    (miss,) = await get(router, "/api/misses")
    assert miss["scores"] == (await get_decisions(router))[0]["decision"]["scores"]
    assert len(miss["scores"]) == 3


async def test_an_unknown_session_is_not_found(stage: Stage) -> None:
    answer = await (await (await stage.router()).admin()).get("/api/sessions/nobody")
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert (error["type"], error["code"], error["message"]) == (
        "invalid_request_error", 404, "there is no session nobody",
    )  # fmt: skip


async def test_names_from_clients_harm_nobody(stage: Stage) -> None:
    router = await stage.router(await stage.replica())
    odd = '</script>\n"é\u2028'
    told(router, "s-1", model=odd, decision=decision(next(iter(router.house.endpoints))))
    assert (await get(router, "/api/sessions", model=odd))[0]["model"] == odd
    assert odd in (await get(router, "/api/overview"))["models"]


# Who may see it


@pytest.mark.parametrize("path", ["/api/overview", "/api/history", "/api/sessions", "/api/misses", "/api/events"])
async def test_the_token_is_asked_for(stage: Stage, path: str) -> None:
    router = await stage.router(admin_token="a secret of the house")
    admin = await router.admin()
    assert (await admin.get(path)).status_code == 401
    async with admin.stream("GET", path, headers={"authorization": "Bearer a secret of the house"}) as answer:
        assert answer.status_code == 200
