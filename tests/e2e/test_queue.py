"""Requests wait in the router for a replica with room: in which order, for how long, and what ends it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from router.app.house import remove_replica
from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from tests.e2e.test_two_routers import know_each_other
from tests.redis_server import running_redis
from tests.rig.client import CHAT, Answer, Client, chat, request
from tests.rig.forms import FORMS, Form
from tests.rig.running import Router
from tests.rig.stage import Stage

FILL = "a long prompt, " * 500
"""Some 1,900 tokens, which are taken for 0.23 s of prefill."""

DEPTH_S = 0.05


class Full:
    """A router whose replicas stand still with as much ahead as they may have: whoever comes next waits."""

    def __init__(self, stage: Stage, router: Router, replicas: list[SimReplica]) -> None:
        self.stage = stage
        self.router = router
        self.replicas = replicas

    @classmethod
    async def of(cls, stage: Stage, count: int = 1, **settings: Any) -> Full:
        replicas = await stage.replicas(count)
        router = await stage.router(*replicas, **({"queue_depth_s": DEPTH_S} | settings))
        full = cls(stage, router, replicas)
        for replica in replicas:
            replica.state.driver.freeze()
        for number in range(count):
            client = await stage.client(router)
            client.send(chat(f"{number} {FILL}", stream=True))
            await router.until(lambda number=number: len(router.in_flight) > number)  # type: ignore[misc]
        for replica in replicas:
            await replica.wait_for(lambda replica=replica: len(replica.requests) == 1, 5.0)  # type: ignore[misc]
        return full

    @property
    def held(self) -> int:
        return len(self.router.house.plane.admission.queue)

    async def wait_with(self, *requests: bytes) -> list[Client]:
        """Let requests come, each on a connection of its own, one after the other; all have to wait."""
        clients = []
        for data in requests:
            clients.append(await self.stage.client(self.router))
            before = self.held
            clients[-1].send(data)
            await self.router.until(lambda before=before: self.held == before + 1, "it does not wait")  # type: ignore[misc]
        return clients

    def go(self) -> None:
        for replica in self.replicas:
            replica.state.driver.thaw()

    def arrived(self, replica: int = 0) -> list[str]:
        """The first words of what a replica was sent after what fills it, in order."""
        bodies = [json.loads(arrival.body) for arrival in self.replicas[replica].requests if arrival.complete]
        return [body["messages"][0]["content"].split()[0] for body in bodies][1:]


async def answers(*clients: Client) -> list[Answer]:
    return list(await asyncio.gather(*(client.answer() for client in clients)))


# Waiting, and going


async def test_a_request_waits_until_there_is_room_and_its_wait_is_recorded(stage: Stage) -> None:
    full = await Full.of(stage)
    (client,) = await full.wait_with(chat("one"))
    assert full.arrived() == [], "the replica has not seen it"
    full.go()
    assert (await client.answer()).status == 200
    await full.router.idle()
    record = next(record for record in full.router.records.finished if record.queued_s)
    assert record.decision is not None
    assert record.overhead_s < record.queued_s < record.total_s
    assert record.ttft_s is not None
    assert record.ttft_s > record.queued_s, "a client's time to the first token has the wait in it"


async def test_with_room_nobody_waits(stage: Stage) -> None:
    router = await stage.router(*await stage.replicas(2), queue_depth_s=DEPTH_S)
    for _ in range(4):
        assert (await stage.ask(router, chat())).status == 200
    assert [record.queued_s for record in router.records.finished] == [0.0] * 4


async def test_a_depth_of_zero_holds_nothing(stage: Stage) -> None:
    full = await Full.of(stage, queue_depth_s=0)
    clients = [await stage.client(full.router) for _ in range(5)]
    for client in clients:
        client.send(chat())
    await full.replicas[0].wait_for(lambda: len(full.arrived()) == 5, 5.0)
    full.go()
    assert {answer.status for answer in await answers(*clients)} == {200}


async def test_short_work_goes_first(stage: Stage) -> None:
    full = await Full.of(stage)
    clients = await full.wait_with(chat("long " * 3_000), chat("middle " * 300), chat("short"))
    full.go()
    await answers(*clients)
    assert full.arrived() == ["short", "middle", "long"]


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ([("x-warmroute-priority", "batch")], {}),
        ([("X-Warmroute-Priority", "5")], {}),
        ([("x-vllm-priority", "1")], {}),
        ([], {"priority": 10}),
    ],
    ids=["header", "number", "vllm", "body"],
)
async def test_interactive_passes_batch(stage: Stage, headers: list[tuple[str, str]], fields: dict[str, Any]) -> None:
    full = await Full.of(stage)
    clients = await full.wait_with(
        *(chat(f"b{number}", headers=headers, **fields) for number in range(3)), chat("urgent " * 30)
    )
    full.go()
    await answers(*clients)
    assert full.arrived()[0] == "urgent"


@pytest.mark.parametrize("said", ["interactive", "0", "-3", "soon"])
async def test_a_header_that_does_not_ask_for_less_wins_over_the_body(stage: Stage, said: str) -> None:
    full = await Full.of(stage)
    clients = await full.wait_with(
        chat("first", headers=[("x-warmroute-priority", said)], priority=7), chat("second " * 40)
    )
    full.go()
    await answers(*clients)
    assert full.arrived() == ["first", "second"]


async def test_the_priority_is_sent_on_as_it_came(stage: Stage) -> None:
    full = await Full.of(stage)
    clients = await full.wait_with(chat("one", headers=[("x-warmroute-priority", "batch")], priority=3))
    full.go()
    await answers(*clients)
    arrival = full.replicas[0].requests[-1]
    assert json.loads(arrival.body)["priority"] == 3
    assert arrival.header(b"x-warmroute-priority") == b"batch"


async def test_a_tenant_that_floods_does_not_delay_another_by_more_than_its_share(stage: Stage) -> None:
    full = await Full.of(stage, tenant_header=("x-team",))
    flood = [chat(f"f{number} " + "word " * 300, headers=[("x-team", "a")]) for number in range(20)]
    other = [chat(f"o{number} " + "word " * 300, headers=[("x-team", "b")]) for number in range(3)]
    clients = await full.wait_with(*flood, *other)
    full.go()
    assert {answer.status for answer in await answers(*clients)} == {200}
    places = [place for place, name in enumerate(full.arrived()) if name.startswith("o")]
    assert places[-1] <= 17, full.arrived()


async def test_a_stream_that_waited_is_an_ordinary_stream(stage: Stage) -> None:
    full = await Full.of(stage)
    (client,) = await full.wait_with(chat("one", stream=True))
    full.go()
    answer = await client.answer()
    assert (answer.status, answer.events()[-1]) == (200, "[DONE]")
    assert answer.replica == full.router.id_of(full.replicas[0])


async def test_http_1_0_and_head_wait_like_others(stage: Stage) -> None:
    full = await Full.of(stage)
    head = chat("head").replace(b"POST ", b"HEAD ", 1)
    old, headed = await full.wait_with(chat("old", version="1.0"), head)
    full.go()
    answer = await old.answer()
    assert answer.status == 200
    await old.closed()
    assert (await headed.answer(head_only=True)).status in (200, 405)


async def test_the_next_request_of_a_connection_is_answered_behind_the_one_that_waits(stage: Stage) -> None:
    full = await Full.of(stage)
    (client,) = await full.wait_with(chat("one") + request("/livez") + chat("two"))
    full.go()
    got = [await client.answer() for _ in range(3)]
    assert [answer.status for answer in got] == [200, 200, 200]
    assert got[1].replica is None
    assert full.arrived() == ["one", "two"]


async def test_a_burst_is_worked_off_and_the_books_are_empty(stage: Stage) -> None:
    full = await Full.of(stage, 3)
    requests = [chat(f"{number} " * 200, stream=number % 2 == 0) for number in range(60)]
    clients = await full.wait_with(*requests)
    full.go()
    assert {answer.status for answer in await answers(*clients)} == {200}
    await full.router.idle()
    queue = full.router.house.plane.admission.queue
    assert (len(queue), queue.bytes, queue.places, len(full.router.house.plane.room)) == (0, 0, [], 0)


# The client leaves


async def test_a_client_that_leaves_is_gone_from_the_queue_at_once(stage: Stage) -> None:
    full = await Full.of(stage)
    gone, stays = await full.wait_with(chat("gone"), chat("stays " * 50))
    gone.leave()
    await full.router.until(lambda: full.held == 1)
    record = full.router.records.finished[-1]
    assert (record.status, record.outcome, record.decision) == (499, "client-left", None)
    assert record.queued_s > 0
    full.go()
    assert (await stays.answer()).status == 200
    assert full.arrived() == ["stays"]


async def test_a_connection_that_is_reset_takes_what_it_pipelined_along(stage: Stage) -> None:
    full = await Full.of(stage)
    (client,) = await full.wait_with(chat("one") + chat("two") + chat("three"))
    client.reset()
    await full.router.until(lambda: full.held == 0)
    full.go()
    await full.router.idle()
    assert full.arrived() == []


# Turned away


def too_busy(form: Form, answer: Answer) -> int:
    """Check that an answer is a refusal in its API's form; return its Retry-After."""
    assert answer.status == 429
    error = answer.json()["error"]
    assert error["type"] == "rate_limit_error"
    assert "max-queue-wait-s" in error["message"]
    if form.path == "/v1/messages":
        assert answer.json()["type"] == "error"
        assert set(error) == {"type", "message"}
    else:
        assert answer.error["code"] == "queue_full"
    retry_after = answer.header("retry-after") or ""
    assert retry_after.isdigit(), "whole seconds, as RFC 9110 has it"
    return int(retry_after)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("stream", [False, True])
async def test_one_that_would_wait_too_long_is_told_when_to_come_back(stage: Stage, form: Form, stream: bool) -> None:
    full = await Full.of(stage, prefill_tokens_per_s=100, max_queue_wait_s=15)
    client = await stage.client(full.router)
    retry_after_s = too_busy(form, await client.ask(form.request(stream=stream)))
    assert 15 < retry_after_s <= 20, "what is ahead, to the second: 1,900 tokens at 100 a second"
    record = full.router.records.finished[-1]
    assert (record.status, record.error, record.queued_s, record.outcome) == (429, "queue_full", 0.0, None)
    assert (await client.ask(request("/livez"))).status == 200, "the connection lives on"


async def test_retry_after_grows_with_the_queue(stage: Stage) -> None:
    full = await Full.of(stage, prefill_tokens_per_s=1_000, max_queue_wait_s=600, max_queued_requests=1)
    said = []
    for room in range(1, 6):
        full.router.house.plane.admission.rules.max_requests = room
        await full.wait_with(chat(f"{room} {FILL}"))
        said.append(too_busy(FORMS["chat"], await stage.ask(full.router, chat(f"another {FILL}"))))
    assert said == sorted(set(said)), said
    assert said[-1] - said[0] == pytest.approx(4 * 1.9, abs=1.5)


async def test_a_short_wait_is_a_second_at_the_least(stage: Stage) -> None:
    full = await Full.of(stage, max_queued_requests=1)
    await full.wait_with(chat("one"))
    assert too_busy(FORMS["chat"], await stage.ask(full.router, chat("two"))) == 1


async def test_too_many_bytes_are_turned_away(stage: Stage) -> None:
    full = await Full.of(stage, max_queued_bytes="1MiB")
    await full.wait_with(chat("y" * 600_000))
    assert too_busy(FORMS["chat"], await stage.ask(full.router, chat("z" * 600_000))) >= 1
    assert full.held == 1


async def test_one_that_has_waited_for_as_long_as_allowed_is_told_so(stage: Stage) -> None:
    full = await Full.of(stage, max_queue_wait_s=0.4)
    (client,) = await full.wait_with(chat("one", stream=True))
    assert too_busy(FORMS["chat"], await client.answer()) >= 1
    record = full.router.records.finished[-1]
    assert record.error == "queue_full"
    assert record.queued_s >= 0.4
    assert full.held == 0


async def test_batch_makes_room_in_a_full_queue(stage: Stage) -> None:
    full = await Full.of(stage, max_queued_requests=2)
    batch = [("x-warmroute-priority", "batch")]
    first, last = await full.wait_with(chat("b1", headers=batch), chat("b2", headers=batch))
    urgent = await stage.client(full.router)
    urgent.send(chat("urgent"))
    assert too_busy(FORMS["chat"], await last.answer()) >= 1
    full.go()
    assert [answer.status for answer in await answers(first, urgent)] == [200, 200]


# The fleet changes


async def test_when_a_home_dies_those_who_wait_for_it_go_elsewhere(stage: Stage) -> None:
    replicas = await stage.replicas(2)
    router = await stage.router(*replicas, queue_depth_s=DEPTH_S)
    story, session = "a story " * 2_000, [("x-session-id", "s")]
    first = await stage.ask(router, chat(story, headers=session, stream=True))
    home, other = sorted(replicas, key=lambda replica: router.id_of(replica) != first.replica)
    home.state.driver.freeze()
    full = Full(stage, router, [home])
    filler = await stage.client(router)
    filler.send(chat(FILL, stream=True, headers=session))
    await router.until(lambda: len(router.in_flight) == 1)
    clients = await full.wait_with(*(chat(f"{story} and {number}", headers=session) for number in range(5)))
    home.faults.set(Fault(FaultKind.REFUSE))
    home.restart_cold()
    got = await answers(*clients)
    assert {(answer.status, answer.replica) for answer in got} == {(200, router.id_of(other))}
    assert (await filler.answer()).status == 200, "tried elsewhere too: it had no byte yet"


async def test_an_empty_fleet_is_waited_for_and_then_said_to_be_empty(stage: Stage) -> None:
    full = await Full.of(stage, max_queue_wait_s=1.0)
    (client,) = await full.wait_with(chat("one"))
    remove_replica(full.router.house, full.router.id_of(full.replicas[0]))
    answer = await client.answer()
    assert (answer.status, answer.error["code"]) == (503, "no_replica")
    full.go()


async def test_a_model_that_is_unloaded_is_not_waited_for(stage: Stage) -> None:
    full = await Full.of(stage)
    (client,) = await full.wait_with(chat("one"))
    full.router.books(full.replicas[0]).models = frozenset({"another-model"})
    answer = await client.answer()
    assert (answer.status, answer.error["code"]) == (404, "model_not_found")
    assert "another-model" in answer.error["message"]
    assert full.router.records.finished[-1].queued_s > 0
    full.go()


async def test_a_replica_that_drains_lets_those_who_wait_for_it_go(stage: Stage) -> None:
    full = await Full.of(stage, 2)
    clients = await full.wait_with(chat("one"), chat("two"))
    draining, other = full.replicas
    full.router.books(draining).health.drain(full.router.house.plane.clock())
    other.state.driver.thaw()
    assert {answer.replica for answer in await answers(*clients)} == {full.router.id_of(other)}
    full.go()


# Several routers


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with running_redis() as url:
        yield url


async def test_what_another_router_has_under_way_holds_requests_here_and_lets_them_go(
    stage: Stage, redis_url: str
) -> None:
    replica = await stage.replica()
    sharing: dict[str, Any] = {"redis": redis_url, "redis_deadline_ms": 500, "queue_depth_s": DEPTH_S}
    routers = [await stage.router(replica, **sharing) for _ in range(2)]
    for router in routers:
        await know_each_other(router, 2)
    one, other = routers
    replica.state.driver.freeze()
    filler = await stage.client(one)
    filler.send(chat(FILL, stream=True))
    await other.until(lambda: other.books(replica).peer_load.uncached_tokens > 0, "nothing is heard")
    full = Full(stage, other, [replica])
    (client,) = await full.wait_with(chat("one"))
    full.go()
    assert (await client.answer()).status == 200
    assert other.records.finished[-1].queued_s > 0
    assert (await filler.answer()).status == 200


# Shapes that are not read


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/audio/transcriptions", CHAT])
async def test_every_shape_waits(stage: Stage, path: str) -> None:
    full = await Full.of(stage)
    (client,) = await full.wait_with(request(path, {"model": "sim-model", "input": "words", "messages": []}))
    full.go()
    assert (await client.answer()).status in (200, 400, 404)
