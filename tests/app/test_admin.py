"""The admin API: metrics, the fleet, the last decisions, and what would be decided."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from router.core.types import Reason
from router.sim.faults import Fault, FaultKind
from tests.rig.client import CHAT, chat, request
from tests.rig.forms import FORMS
from tests.rig.running import Router
from tests.rig.stage import Stage

STORY = "a long story, " * 200


async def samples(router: Router) -> dict[str, list[tuple[dict[str, str], float]]]:
    """All samples of /metrics by name, as Prometheus reads them."""
    answer = await (await router.admin()).get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def total(found: list[tuple[dict[str, str], float]], **labels: str) -> float:
    return sum(value for own, value in found if labels.items() <= own.items())


async def decisions(router: Router, **query: Any) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = (await (await router.admin()).get("/api/decisions", params=query)).json()
    return listed


def body_of(message: bytes) -> bytes:
    return message.partition(b"\r\n\r\n")[2]


# /metrics


async def test_requests_decisions_and_tokens_are_counted_by_replica_and_model(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    name = router.id_of(replica)
    client = await stage.client(router)
    reported = []
    for stream in (False, True, True):
        options = {"include_usage": True} if stream else None
        answer = await client.ask(chat(STORY, stream=stream, stream_options=options))
        counts = answer.events()[-2]["usage"] if stream else answer.json()["usage"]
        reported.append((counts["prompt_tokens"], counts["prompt_tokens_details"]["cached_tokens"]))
    await client.ask(chat(model="nope"))
    found = await samples(router)
    assert total(found["warmroute_requests_total"], replica=name, model="sim-model", status="200") == 3
    assert total(found["warmroute_requests_total"], status="404") == 1
    assert total(found["warmroute_decisions_total"], replica=name, reason="new") == 1
    assert total(found["warmroute_decisions_total"], replica=name, reason="warm") == 2
    of_model = {"replica": name, "model": "sim-model"}
    assert total(found["warmroute_prompt_tokens_total"], **of_model) == sum(prompt for prompt, _ in reported)
    assert total(found["warmroute_engine_cached_tokens_total"], **of_model) == sum(cached for _, cached in reported)
    predicted = total(found["warmroute_predicted_cached_tokens_total"], **of_model)
    assert abs(predicted - sum(cached for _, cached in reported)) <= 32
    assert total(found["warmroute_ttft_seconds_count"], cache="warm", **of_model) == 2
    assert total(found["warmroute_overhead_seconds_count"]) == 4
    assert 0 < total(found["warmroute_overhead_seconds_sum"]) < 1
    assert total(found["warmroute_index_bytes"]) > 0


async def test_what_is_in_flight_is_a_gauge_that_comes_back_to_zero(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    replica.state.driver.freeze()
    client = await stage.client(router)
    client.send(chat(STORY, stream=True))
    await router.until(lambda: bool(router.in_flight))
    found = await samples(router)
    assert total(found["warmroute_inflight_requests"]) == 1
    assert total(found["warmroute_ledger_tokens"]) > 500
    replica.state.driver.thaw()
    await client.answer()
    await router.idle()
    found = await samples(router)
    assert total(found["warmroute_inflight_requests"]) == total(found["warmroute_ledger_tokens"]) == 0


async def test_a_replicas_state_and_its_engines_pressure_are_gauges(stage: Stage) -> None:
    up, down = await stage.replicas(2)
    router = await stage.router(up, down, watched=True, scrape_interval_s=0.1)
    await router.until(lambda: router.books(up).report.kv_tokens is not None)
    down.faults.set(Fault(FaultKind.REFUSE))
    down.restart_cold()
    await router.until(lambda: not router.books(down).health.up)
    found = await samples(router)
    assert total(found["warmroute_replica_up"], replica=router.id_of(up)) == 1
    assert total(found["warmroute_replica_up"], replica=router.id_of(down)) == 0
    assert total(found["warmroute_engine_kv_capacity_tokens"], replica=router.id_of(up)) == 300_000
    assert total(found["warmroute_engine_running_requests"], replica=router.id_of(up)) == 0


async def test_failed_attempts_and_the_routers_own_errors_are_counted(stage: Stage) -> None:
    dead = await stage.replica()
    dead.faults.set(Fault(FaultKind.REFUSE))
    router = await stage.router(dead)
    await stage.ask(router, chat())
    found = await samples(router)
    assert total(found["warmroute_attempt_failures_total"], replica=router.id_of(dead), kind="refused") == 1
    assert total(found["warmroute_errors_total"], code="upstream_failed") == 1
    assert total(found["warmroute_requests_total"], status="503") == 1


async def test_clients_can_not_make_labels_without_end(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    client = await stage.client(router)
    for number in range(100):
        await client.ask(chat(model=f"made-up-{number}"))
    models = {labels["model"] for labels, _ in (await samples(router))["warmroute_requests_total"]}
    assert len(models) <= 65
    assert "other" in models


async def test_label_values_from_clients_are_escaped(stage: Stage) -> None:
    router = await stage.router(await stage.replica())
    odd = 'quote" back\\slash new\nline é'
    await stage.ask(router, chat(model=odd))
    labels = [labels["model"] for labels, _ in (await samples(router))["warmroute_requests_total"]]
    assert labels == [odd]


async def test_the_index_never_takes_more_than_it_may(stage: Stage) -> None:
    router = await stage.router(*await stage.replicas(2), index_bytes=1 << 20)
    client = await stage.client(router)
    for number in range(60):
        assert (await client.ask(chat(f"{number} " + "some words " * 9_000, max_tokens=1))).status == 200
        assert router.house.fleet.index.size_bytes <= 1 << 20
    assert total((await samples(router))["warmroute_index_bytes"]) > (1 << 20) / 2
    last = await client.ask(chat("59 " + "some words " * 9_000, max_tokens=1))
    assert last.reason == "warm", "what was used last is kept"


async def test_reading_metrics_while_streams_run_disturbs_nobody(stage: Stage) -> None:
    router = await stage.router(*await stage.replicas(2, time_scale=1.0))
    client = await stage.client(router)
    client.send(chat(stream=True, max_tokens=20, ignore_eos=True))
    answer = await client.head()
    while await client.chunk(answer):
        await samples(router)
    assert answer.events()[-1] == "[DONE]"


# /api/fleet


async def test_the_fleet_is_shown_with_addresses_and_books(stage: Stage) -> None:
    replicas = await stage.replicas(2)
    router = await stage.router(*replicas, watched=True, scrape_interval_s=0.1)
    await router.until(lambda: all(router.books(replica).models for replica in replicas))
    await stage.ask(router, chat(STORY))
    shown = (await (await router.admin()).get("/api/fleet")).json()
    assert shown["policy"] == "affinity"
    assert [replica["url"] for replica in shown["replicas"]] == [replica.url for replica in replicas]
    first = shown["replicas"][0]
    assert first["id"] == router.id_of(replicas[0])
    assert (first["state"], first["models"]) == ("ready", ["sim-model"])
    assert first["ledger"] == {"uncached_tokens": 0, "streams": 0}
    assert first["mirror"]["blocks"] > 0
    assert first["engine"]["kv_tokens"] == 300_000


async def test_an_ejected_replica_says_why(stage: Stage) -> None:
    bad, good = await stage.replicas(2)
    bad.faults.set(Fault(FaultKind.RESET_BEFORE_FIRST_BYTE))
    router = await stage.router(bad, good)
    await stage.ask(router, chat())
    shown = (await (await router.admin()).get("/api/fleet")).json()["replicas"][0]
    assert (shown["state"], shown["cause"], shown["failures"]) == ("ejected", "reset", 1)


# /api/decisions


async def test_decisions_are_kept_with_their_score_tables_newest_first(stage: Stage) -> None:
    replicas = await stage.replicas(3)
    router = await stage.router(*replicas)
    client = await stage.client(router)
    for ident in ("first", "second"):
        await client.ask(chat(STORY, headers=[("x-request-id", ident)]))
    listed = await decisions(router)
    assert [record["request_id"] for record in listed] == ["second", "first"]
    record = listed[0]
    assert (record["path"], record["model"], record["shape"], record["status"]) == (CHAT, "sim-model", "chat", 200)
    assert record["outcome"] == "completed"
    decision = record["decision"]
    assert decision["reason"] == "warm"
    assert decision["home"] == decision["replica"] == listed[1]["decision"]["replica"]
    assert len(decision["scores"]) == 3
    totals = [score["total_s"] for score in decision["scores"]]
    assert totals == sorted(totals)
    assert decision["scores"][0]["replica"] == decision["replica"]
    assert [score["replica"] for score in decision["scores"][1:]] == decision["alternates"]
    assert abs(decision["matched_tokens"] - record["usage"]["cached_tokens"]) <= 16
    assert listed[1]["at_s"] + listed[1]["total_s"] <= record["at_s"] + 0.001  # one was sent after the other's answer
    assert [entry["request_id"] for entry in await decisions(router, limit=1)] == ["second"]


async def test_no_more_than_a_thousand_decisions_are_kept(stage: Stage) -> None:
    router = await stage.router(await stage.replica())
    client = await stage.client(router)
    for start in range(0, 1_010, 10):
        client.send(b"".join(chat(headers=[("x-request-id", str(start + step))]) for step in range(10)))
        for _ in range(10):
            await client.answer()
    listed = await decisions(router)
    assert len(listed) == 1_000
    assert (listed[0]["request_id"], listed[-1]["request_id"]) == ("1009", "10")
    assert (await (await router.admin()).get("/api/decisions", params={"limit": 0})).status_code == 422


async def test_every_reason_can_be_had_and_is_known(stage: Stage) -> None:
    replicas = await stage.replicas(2)
    router = await stage.router(*replicas)
    client = await stage.client(router)
    seen = []
    for sent in (
        chat("hi"),
        request("/v1/made/up", b"{}"),
        chat(STORY),
        chat(STORY),
        chat("hi", headers=[("x-session-id", "s")]),
        chat("hi", headers=[("x-session-id", "s")]),
        FORMS["responses"].request(),
    ):
        answer = await client.ask(sent)
        seen.append(answer.reason)
    fetched = await client.ask(request(f"/v1/responses/{answer.json()['id']}"))
    seen.append(fetched.reason)
    assert seen == ["keyless", "unknown-shape", "new", "warm", "keyless", "session", "keyless", "pinned"]
    assert {record["decision"]["reason"] for record in await decisions(router)} <= {reason.value for reason in Reason}


# /api/explain


async def test_explain_decides_as_the_router_would_and_changes_nothing(stage: Stage) -> None:
    replicas = await stage.replicas(3)
    router = await stage.router(*replicas)
    home = (await stage.ask(router, chat(STORY))).replica
    admin = await router.admin()
    before = (await admin.get("/api/fleet")).json()
    sent = sum(len(replica.requests) for replica in replicas)
    for _ in range(3):
        shown = (await admin.post("/api/explain", content=body_of(chat(STORY)))).json()
        assert (shown["replica"], shown["reason"], shown["shape"]) == (home, "warm", "chat")
        assert shown["blocks"] > 1
        assert shown["matched_tokens"] > 500
        assert len(shown["scores"]) == 3
    assert (await admin.get("/api/fleet")).json() == before
    assert sum(len(replica.requests) for replica in replicas) == sent


async def test_explain_takes_other_paths_and_session_headers(stage: Stage) -> None:
    router = await stage.router(*await stage.replicas(2))
    home = (await stage.ask(router, chat(headers=[("x-session-id", "s")]))).replica
    admin = await router.admin()
    shown = (await admin.post("/api/explain", content=body_of(chat()), headers={"x-session-id": "s"})).json()
    assert (shown["replica"], shown["reason"]) == (home, "session")
    responses = body_of(FORMS["responses"].request(STORY * 3))
    shown = (await admin.post("/api/explain", content=responses, params={"path": "/v1/responses"})).json()
    assert (shown["shape"], shown["reason"]) == ("responses", "new")


@pytest.mark.parametrize(("body", "status"), [(b"", 400), (b"{", 400), (b"\xff", 400), (b"[]", 503), (b"{}", 503)])
async def test_explain_says_what_is_wrong(stage: Stage, body: bytes, status: int) -> None:
    router = await stage.router()
    answer = await (await router.admin()).post("/api/explain", content=body)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


async def test_what_the_admin_port_refuses_has_the_form_of_openais_errors(stage: Stage) -> None:
    admin = await (await stage.router()).admin()
    for answer, status, param in (
        (await admin.get("/api/decisions", params={"limit": 0}), 422, "limit"),
        (await admin.get("/api/nothing"), 404, None),
        (await admin.post("/api/fleet"), 405, None),
    ):
        assert answer.status_code == status
        error = answer.json()["error"]
        assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", status, param)


# Its own documentation


async def test_the_admin_api_documents_itself(stage: Stage) -> None:
    admin = await (await stage.router()).admin()
    for path in ("/docs", "/redoc"):
        assert (await admin.get(path)).status_code == 404, "these pages would load their scripts from elsewhere"
    schema = (await admin.get("/openapi.json")).json()
    assert {"/metrics", "/api/fleet", "/api/decisions", "/api/explain", "/api/replicas/{id}"} <= set(schema["paths"])
    for path in schema["paths"].values():
        for operation in path.values():
            assert operation["description"]
