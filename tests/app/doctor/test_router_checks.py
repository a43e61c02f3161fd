"""Each finding about the router: there where it should be, and not where it should not."""

from __future__ import annotations

import pytest

from router.app.doctor.asking import Reply
from router.app.doctor.findings import Check, Level
from router.app.doctor.router_checks import check_reading, check_router
from tests.app.doctor.seen import MISSING, REFUSED, answer, engine, found, level, place, row, view


def test_a_router_with_nothing_wrong() -> None:
    told = check_router(view(row(1), row(2)), given_replicas=False)
    assert {finding.level for finding in told} == {Level.OK, Level.NOTE}
    assert level(told, Check.REDIS) is Level.NOTE
    assert found(told, Check.READY).what == "2 of 2 replicas are up"


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (answer({"status": "ok", "replicas": 2, "up": 1}), Level.WARNING),
        (answer({"status": "no replica is up", "replicas": 2, "up": 0}, 503), Level.PROBLEM),
    ],
)
def test_replicas_that_are_not_up(reply: Reply, expected: Level) -> None:
    assert level(check_router(view(row(1), row(2), ready=reply), given_replicas=False), Check.READY) is expected


def test_something_else_on_the_client_port() -> None:
    assert level(check_router(view(live=MISSING), given_replicas=False), Check.ROUTER) is Level.WARNING


@pytest.mark.parametrize(
    ("reply", "says"),
    [(Reply(401), "WARMROUTE_ADMIN_TOKEN"), (Reply(403), "localhost"), (REFUSED, "--admin"), (MISSING, "--admin")],
)
def test_an_admin_port_that_can_not_be_read(reply: Reply, says: str) -> None:
    seen = view()
    blind = type(seen)(seen.live, seen.ready, seen.models, reply, seen.schema)
    told = found(check_router(blind, given_replicas=False), Check.ADMIN)
    assert told.level is Level.WARNING
    assert says in told.change
    assert told.why == "no replica can be looked at"
    assert found(check_router(blind, given_replicas=True), Check.ADMIN).why.startswith("only the replicas given")


def test_another_release_of_the_router_is_noted() -> None:
    told = check_router(view(schema=answer({"info": {"version": "9.9.9"}})), given_replicas=False)
    assert level(told, Check.ADMIN) is Level.NOTE


def test_a_policy_that_does_not_look_at_caches() -> None:
    assert (
        level(check_router(view(fleet={"policy": "round-robin"}), given_replicas=False), Check.POLICY) is Level.WARNING
    )


@pytest.mark.parametrize(
    ("waiting", "running", "expected"), [(0, 0, Level.OK), (3, 9, Level.NOTE), (30, 9, Level.WARNING)]
)
def test_what_waits_is_held_against_what_runs(waiting: int, running: int, expected: Level) -> None:
    queue = {"queue": {"requests": {"interactive": waiting, "batch": 0}}}
    told = check_router(view(row(1, ledger={"streams": running}), fleet=queue), given_replicas=False)
    assert level(told, Check.QUEUE) is expected


@pytest.mark.parametrize(
    ("state", "expected"),
    [("up", Level.OK), ("slow", Level.WARNING), ("refusing", Level.WARNING), ("down", Level.WARNING)],
)
def test_the_state_of_redis(state: str, expected: Level) -> None:
    redis = {"redis": {"state": state, "cause": "it said so", "dropped": {"news": 0}}}
    told = check_router(view(fleet=redis), given_replicas=False)
    assert level(told, Check.REDIS) is expected
    assert level(told, Check.ROUTERS) is Level.NOTE


def test_routers_that_know_of_each_other() -> None:
    shared = {"redis": {"state": "up", "cause": None, "dropped": {"news": 7}}, "routers": [{}, {}]}
    told = check_router(view(fleet=shared), given_replicas=False)
    assert level(told, Check.ROUTERS) is Level.OK
    assert "7 pieces" in found(told, Check.REDIS).what


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("ready", Level.OK),
        ("joining", Level.NOTE),
        ("suspect", Level.NOTE),
        ("draining", Level.NOTE),
        ("ejected", Level.PROBLEM),
    ],
)
def test_the_state_of_a_replica(state: str, expected: Level) -> None:
    told = check_router(view(row(1, state=state, cause="it refused", drained_by="operator")), given_replicas=False)
    assert level(told, Check.REPLICA_STATE) is expected


def test_what_doctor_can_read_and_the_router_can_not() -> None:
    assert level(check_reading(engine()), Check.ROUTER_READS) is Level.OK
    blind = engine(place=place(1, row(1, models=[], engine={"kv_tokens": None})))
    told = found(check_reading(blind), Check.ROUTER_READS)
    assert told.level is Level.WARNING
    assert "size and models" in told.what
