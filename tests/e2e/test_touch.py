"""With --touch a session that is about to be evicted is renewed while its replica is idle, and nobody sees it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from router.app.roster.touching import Body
from router.core.curves import ReturnClass
from router.core.touching.offers import Offer
from router.core.touching.touching import Touching
from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from router.sim.types import EngineConfig
from tests.rig.client import CHAT, DEADLINE_S, Answer, request
from tests.rig.running import Router
from tests.rig.stage import Stage

KV_TOKENS = 6_500
"""Room for three of the sessions below."""

TALL = "tall tales of old sailors " * 400
"""About 2,000 tokens."""

Fields = dict[str, Any]


def turn(name: str, *later: tuple[str, str]) -> Fields:
    """A session's turn: its first message, then what was said since."""
    messages = [{"role": "user", "content": f"{name}: {TALL}"}]
    messages += [{"role": role, "content": text} for role, text in later]
    return {"model": "sim-model", "messages": messages, "max_tokens": 4}


async def ask(stage: Stage, router: Router, body: Fields, path: str = CHAT) -> Answer:
    answer = await stage.ask(router, request(path, body))
    assert answer.status == 200
    return answer


def cached_tokens(answer: Answer) -> int:
    tokens: int = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return tokens


async def touching(stage: Stage, settings: dict[str, Any] | None = None, **options: Any) -> tuple[Router, SimReplica]:
    """A router that touches when the test says so, and its only replica."""
    replica = await stage.replica(engine=EngineConfig(kv_tokens=KV_TOKENS), **options)
    router = await stage.router(replica, touch=True, prefill_tokens_per_s=1_000, **(settings or {}))
    return router, replica


def books_of_touches(router: Router) -> Touching[Body]:
    toucher = router.house.toucher
    assert toucher is not None
    return toucher.touching


async def told(router: Router) -> dict[str, Any]:
    overview = (await (await router.admin()).get("/api/overview")).json()
    touching: dict[str, Any] = overview["touching"]
    return touching


async def touch(router: Router, replica: SimReplica) -> None:
    """Touch the session that was used longest ago, whatever its chances are; wait for the end of it."""
    begin(router, replica)
    await router.until(lambda: not books_of_touches(router).under_way)


def begin(router: Router, replica: SimReplica) -> None:
    toucher = router.house.toucher
    assert toucher is not None
    kept = next(toucher.touching.shelf.on(router.id_of(replica)))
    toucher.begin(Offer(kept, 1.0, 0.0, 1.0), router.house.plane.clock())


async def test_a_session_that_would_be_gone_is_warm(stage: Stage) -> None:
    router, replica = await touching(stage)
    first = await ask(stage, router, turn("ahab"))
    await ask(stage, router, turn("bligh"))
    await touch(router, replica)
    await ask(stage, router, turn("cook"))
    await ask(stage, router, turn("drake"))
    said = first.json()["choices"][0]["message"]["content"]
    warm = await ask(stage, router, turn("ahab", ("assistant", said), ("user", "and then?")))
    assert cached_tokens(warm) > 1_900
    gone = await ask(stage, router, turn("bligh", ("assistant", "aye"), ("user", "and then?")))
    assert cached_tokens(gone) < 1_000, "it was used as long ago, and not touched"


async def test_what_came_of_it_is_told(stage: Stage) -> None:
    router, replica = await touching(stage)
    books = router.books(replica)
    await ask(stage, router, turn("ahab"))
    books.mirror.capacity_bytes = books.mirror.idle_bytes * 2.5
    await ask(stage, router, turn("bligh"))
    await touch(router, replica)
    await ask(stage, router, turn("cook"))
    await ask(stage, router, turn("ahab", ("assistant", "aye"), ("user", "and then?")))
    account = await told(router)
    assert account["touches"] == {"done": 1}
    assert (account["hits"], account["misses"]) == (1, 0)
    assert account["saved_s"] > 1, "2,000 tokens at 1,000 a second, as far as the router knows"
    assert account["profit_s"] == pytest.approx(account["saved_s"] - account["lost_s"] - account["spent_s"], abs=0.002)
    page = (await (await router.admin()).get("/metrics")).text
    assert f'warmroute_touches_total{{replica="{router.id_of(replica)}",result="done"}} 1.0' in page


async def test_a_touch_is_no_request_of_a_clients(stage: Stage) -> None:
    router, replica = await touching(stage)
    await ask(stage, router, turn("ahab"))
    await router.idle()
    now = router.house.plane.clock()
    books, returns = router.books(replica), router.house.fleet.returns
    before = (books.recent.requests(now), returns.away, returns.followed, books.ledger.streams, books.last_chosen)
    begin(router, replica)
    assert (books.ledger.streams, books.ledger.uncached_tokens) == (0, 0), "nobody is to be kept off by it"
    await router.until(lambda: not books_of_touches(router).under_way)
    after = (books.recent.requests(now), returns.away, returns.followed, books.ledger.streams, books.last_chosen)
    assert after == before
    assert len(router.records.finished) == 1
    page = (await (await router.admin()).get("/metrics")).text
    counts = [line for line in page.splitlines() if line.startswith("warmroute_requests_total{")]
    assert sum(float(line.split()[-1]) for line in counts) == 1
    assert len(replica.requests) == 2


async def test_it_asks_for_one_token_of_the_same_prompt_and_nothing_else(stage: Stage) -> None:
    router, replica = await touching(stage, {"engine_api_key": "engines"}, api_key="engines")
    extra = {"stream": True, "n": 2, "temperature": 0.3, "logprobs": True, "user": "me", "cache_salt": "s"}
    await ask(stage, router, turn("ahab") | extra)
    await touch(router, replica)
    assert (await told(router))["touches"] == {"done": 1}, "it has the engines' key"
    sent = json.loads(replica.requests[-1].body)
    messages = turn("ahab")["messages"]
    wanted = {"model": "sim-model", "messages": messages, "cache_salt": "s", "max_tokens": 1, "stream": False}
    assert sent == wanted


@pytest.mark.parametrize(
    ("path", "body", "own"),
    [
        ("/v1/completions", {"prompt": TALL}, {"max_tokens": 1}),
        ("/v1/responses", {"input": TALL, "store": True}, {"max_output_tokens": 1, "store": False}),
        ("/v1/messages", {"messages": turn("x")["messages"], "max_tokens": 4}, {"max_tokens": 1}),
    ],
)
async def test_every_shape_of_sessions_is_touched(stage: Stage, path: str, body: Fields, own: Fields) -> None:
    router, replica = await touching(stage)
    await ask(stage, router, {"model": "sim-model"} | body, path)
    await touch(router, replica)
    arrival = replica.requests[-1]
    assert arrival.path == path
    assert json.loads(arrival.body) == {"model": "sim-model"} | body | own | {"stream": False}
    assert (await told(router))["touches"] == {"done": 1}


async def test_a_refused_one_is_not_made_again(stage: Stage) -> None:
    router, replica = await touching(stage)
    await ask(stage, router, turn("ahab"))
    replica.faults.set(Fault(FaultKind.STATUS, status=400, count=1))
    await touch(router, replica)
    account = await told(router)
    assert account["touches"] == {"refused": 1}
    assert (account["sessions"], account["kept_bytes"]) == (0, 0)


async def test_a_request_ends_the_touch_of_its_replica(stage: Stage) -> None:
    router, replica = await touching(stage)
    await ask(stage, router, turn("ahab"))
    replica.state.freeze()
    begin(router, replica)
    await replica.wait_for(lambda: replica.engine.waiting + replica.engine.running == 1, DEADLINE_S)
    client = await stage.client(router)
    client.send(request(CHAT, turn("bligh")))
    await router.until(lambda: not books_of_touches(router).under_way)
    assert (await told(router))["touches"] == {"interrupted": 1}
    replica.state.go_on()
    assert (await client.answer()).status == 200
    assert replica.engine.stats.aborted == 1


async def test_one_that_is_ended_before_its_first_step_is_counted_out(stage: Stage) -> None:
    router, replica = await touching(stage)
    await ask(stage, router, turn("ahab"))
    begin(router, replica)
    toucher = router.house.toucher
    assert toucher is not None
    await toucher.stop()
    assert not books_of_touches(router).under_way
    assert router.books(replica).mirror.held_bytes == 0


async def test_nothing_is_kept_without_it(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    await ask(stage, router, turn("ahab"))
    assert router.house.plane.keeper is None
    overview = (await (await router.admin()).get("/api/overview")).json()
    assert overview["touching"] is None


async def test_what_is_kept_is_in_no_log_and_on_no_page(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    router, replica = await touching(stage)
    await ask(stage, router, turn("ahab"))
    await touch(router, replica)
    admin = await router.admin()
    pages = [(await admin.get(path)).text for path in ("/api/overview", "/api/fleet", "/metrics")]
    assert not any("old sailors" in text for text in [*pages, caplog.text])


async def test_a_router_touches_by_itself_what_is_likely_to_come_back_too_late(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica, touch=True, prefill_tokens_per_s=250)
    toucher, fleet, now = router.house.toucher, router.house.fleet, router.house.plane.clock()
    assert toucher is not None
    for session in range(500):
        fleet.returns.ended(session, ReturnClass.of("length", 1, from_tool=False), now - 9.0)
        fleet.returns.came_back(session, now - 8.9)
    await ask(stage, router, turn("ahab"))
    await ask(stage, router, turn("bligh"))
    books = router.books(replica)
    toucher.look()
    assert not toucher.touching.under_way, "nothing is evicted"
    while not toucher.describe()["touches"].get("done"):  # on a slow machine they are too late to be worth it
        await ask(stage, router, turn("ahab"))
        await ask(stage, router, turn("bligh"))
        books.mirror.capacity_bytes = books.mirror.idle_bytes
        toucher.touching.offers.pace(books).saw(0.0, router.house.plane.clock())
        toucher.look()
        await router.until(lambda: not toucher.touching.under_way)
    assert json.loads(replica.requests[-1].body)["messages"] == turn("ahab")["messages"]
    assert toucher.describe()["touches"] == {"done": 1}
