"""A replica accepts everything and says nothing, while others answer: it is left, and its requests go elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from router.core import silence
from router.core.health import Cause, State
from router.proxy import plane
from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from tests.faults.test_dies_mid_stream import events_until_cut
from tests.rig.client import Client, chat
from tests.rig.forms import FORMS, Form
from tests.rig.running import Router
from tests.rig.stage import FAST, Stage

SESSION = [("x-session-id", "at home on the wedged one")]
ELSEWHERE = [("x-session-id", "at home on another one")]


@pytest.fixture(autouse=True)
def patience_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five seconds of silence, and two looks a second, are for real engines."""
    monkeypatch.setattr(silence, "SILENT_S", 0.3)
    monkeypatch.setattr(plane, "SWEEP_S", 0.05)


class Fleet:
    """Replicas that have all answered; the first one is home to `SESSION` and is about to wedge."""

    def __init__(self, stage: Stage, router: Router, wedged: SimReplica, other: SimReplica) -> None:
        self.stage = stage
        self.router = router
        self.wedged = wedged
        self.other = other
        self.health = router.books(wedged).health

    @classmethod
    async def of(cls, stage: Stage, *, time_scale: float = FAST.time_scale, **settings: Any) -> Fleet:
        replicas = await stage.replicas(2, time_scale=time_scale)
        router = await stage.router(*replicas, **settings)
        client = await stage.client(router)
        for number in range(4):
            assert (await client.ask(chat(f"{number}", stream=number < 2))).status == 200
        assert all(replica.health.state is State.READY for replica in router.house.fleet)
        home, elsewhere = [(await client.ask(chat(headers=session))).replica for session in (SESSION, ELSEWHERE)]
        assert home != elsewhere
        wedged, other = sorted(replicas, key=lambda replica: router.id_of(replica) != home)
        return cls(stage, router, wedged, other)

    async def stuck(self, *requests: bytes) -> list[Client]:
        """Send requests, which must be of the session, to the wedged one, and wait until it has them."""
        seen = len(self.wedged.requests)
        clients = [await self.stage.client(self.router) for _ in requests]
        for client, data in zip(clients, requests, strict=True):
            client.send(data)
        await self.wedged.wait_for(lambda: len(self.wedged.requests) == seen + len(requests), 5.0)
        return clients

    @contextlib.asynccontextmanager
    async def others_answer(self) -> AsyncIterator[list[int]]:
        """Let the other one answer one request after the other meanwhile; gives the statuses of the answers."""
        statuses: list[int] = []

        async def ask_on() -> None:
            client = await self.stage.client(self.router)
            while True:
                statuses.append((await client.ask(chat(headers=ELSEWHERE, stream=True))).status)

        asking = asyncio.ensure_future(ask_on())
        try:
            yield statuses
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("stream", [False, True])
async def test_its_requests_are_answered_by_others(stage: Stage, form: Form, stream: bool) -> None:
    fleet = await Fleet.of(stage)
    fleet.wedged.faults.set(Fault(FaultKind.HANG))
    async with fleet.others_answer() as statuses:
        (client,) = await fleet.stuck(form.request(headers=SESSION, stream=stream))
        answer = await client.answer()
        assert (answer.status, answer.replica) == (200, fleet.router.id_of(fleet.other))
        assert answer.reason == "failover"
    assert set(statuses) == {200}
    assert (fleet.health.state, fleet.health.cause) == (State.EJECTED, Cause.SILENCE)
    assert failures(fleet) == {"silent"}
    record = next(record for record in fleet.router.records.finished if record.attempts == 2)
    assert (record.outcome, record.error) == ("completed", None)
    assert all(arrival.left_early for arrival in fleet.wedged.requests if not arrival.ended), "its engine is told"


def failures(fleet: Fleet) -> set[str]:
    """How attempts on the wedged one have failed."""
    return {kind for name, kind in fleet.router.records.failed if name == fleet.router.id_of(fleet.wedged)}


async def test_a_silent_prefill_behind_a_head_is_silence_too(stage: Stage) -> None:
    fleet = await Fleet.of(stage)
    fleet.wedged.state.driver.freeze()
    async with fleet.others_answer():
        clients = await fleet.stuck(*[chat(f"{number}", headers=SESSION, stream=True) for number in range(5)])
        answers = await asyncio.gather(*(client.answer() for client in clients))
    assert {(answer.status, answer.replica) for answer in answers} == {(200, fleet.router.id_of(fleet.other))}
    assert {arrival.status for arrival in list(fleet.wedged.requests)[-5:]} == {200}


async def test_it_is_logged_once(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    fleet = await Fleet.of(stage)
    fleet.wedged.faults.set(Fault(FaultKind.HANG))
    async with fleet.others_answer():
        (client,) = await fleet.stuck(chat(headers=SESSION))
        assert (await client.answer()).status == 200
    told = [record.getMessage() for record in caplog.records if "says nothing" in record.getMessage()]
    assert told == [f"replica {fleet.router.id_of(fleet.wedged)} says nothing while others answer: it is left"]


async def test_a_stream_that_it_has_begun_is_not_made_twice(stage: Stage) -> None:
    """What was passed on can't be taken back: such a stream ends by the limit on silence, with an event."""
    fleet = await Fleet.of(stage, silence_timeout_s=3.0)
    (begun,) = await fleet.stuck(chat(headers=SESSION, stream=True, max_tokens=5_000, ignore_eos=True))
    head = await begun.head()
    await begun.chunk(head)
    fleet.wedged.state.driver.freeze()
    async with fleet.others_answer():
        (waiting,) = await fleet.stuck(chat(headers=SESSION, stream=True))
        assert (await waiting.answer()).status == 200
        *_, last = await events_until_cut(begun, head)
    assert FORMS["chat"].error_of(last)["code"] == "upstream_died"


async def test_where_nobody_answers_nobody_is_judged(stage: Stage) -> None:
    """It may be the network, or this router: to leave all of them would help nobody."""
    fleet = await Fleet.of(stage)
    for replica in (fleet.wedged, fleet.other):
        replica.faults.set(Fault(FaultKind.HANG))
    (client,) = await fleet.stuck(chat(headers=SESSION))
    until = fleet.router.house.plane.clock() + 1.5
    await fleet.router.until(lambda: fleet.router.house.plane.clock() > until)
    assert fleet.health.up
    client.leave()


async def test_a_queue_at_an_engine_that_works_is_no_silence(stage: Stage) -> None:
    """Its requests take long, but something comes from it all the time."""
    fleet = await Fleet.of(stage, time_scale=2.0)
    slow = fleet.wedged
    (begun,) = await fleet.stuck(chat(headers=SESSION, stream=True, max_tokens=3_000, ignore_eos=True))
    head = await begun.head()
    slow.faults.set(Fault(FaultKind.HANG))
    async with fleet.others_answer():
        (client,) = await fleet.stuck(chat(headers=SESSION, stream=True))
        until = fleet.router.house.plane.clock() + 1.5
        while fleet.router.house.plane.clock() < until:
            assert await begun.chunk(head)
    assert fleet.health.state is State.READY
    client.leave()
    begun.leave()


async def test_without_retries_it_waits_for_the_limit_on_silence(stage: Stage) -> None:
    fleet = await Fleet.of(stage, max_retries=0, silence_timeout_s=1.5)
    fleet.wedged.faults.set(Fault(FaultKind.HANG))
    async with fleet.others_answer():
        (client,) = await fleet.stuck(chat(headers=SESSION))
        answer = await client.answer()
    assert (answer.status, answer.error["code"]) == (504, "upstream_silent")


async def test_one_that_drains_is_left_by_those_whom_it_does_not_answer(stage: Stage) -> None:
    fleet = await Fleet.of(stage)
    fleet.wedged.faults.set(Fault(FaultKind.HANG))
    async with fleet.others_answer():
        (client,) = await fleet.stuck(chat(headers=SESSION))
        fleet.health.drain(fleet.router.house.plane.clock())
        assert (await client.answer()).status == 200
    assert fleet.health.state is State.DRAINING


async def test_when_it_works_again_requests_find_out(stage: Stage) -> None:
    """Without the watch, which has it generate a token: one request at a time is tried there after a back-off."""
    fleet = await Fleet.of(stage)
    fleet.wedged.faults.set(Fault(FaultKind.HANG))
    async with fleet.others_answer() as statuses:
        (client,) = await fleet.stuck(chat(headers=SESSION))
        assert (await client.answer()).status == 200
        assert (await client.ask(chat(headers=SESSION))).replica == fleet.router.id_of(fleet.other), (
            "it lives there now"
        )
        seen = len(fleet.wedged.requests)
        trial = await stage.client(fleet.router)
        while len(fleet.wedged.requests) == seen:
            assert (await trial.ask(chat("no session's"))).status == 200, "one that hangs costs no more than a moment"
        fleet.wedged.faults.clear()
        while fleet.health.state is not State.READY:
            assert (await trial.ask(chat("no session's"))).status == 200
    assert set(statuses) == {200}
