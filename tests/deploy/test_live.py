"""A real Prometheus scrapes two live routers and is asked everything that rules and dashboards ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from router.sim.types import EngineConfig
from tests.deploy.shipped import Asked, alerts, asked_by_boards, asked_by_rules, recorded, scraped_by
from tests.deploy.tools import Prometheus, running_prometheus
from tests.e2e.test_two_routers import know_each_other
from tests.redis_server import running_redis
from tests.rig.client import CHAT, Client, HeaderLines, chat, request
from tests.rig.running import Router
from tests.rig.sharing import eventually
from tests.rig.stage import Stage
from tests.rig.talks import ChatTalk, text

KEY = "sk-of-a-test"
AUTH = ("authorization", f"Bearer {KEY}")
BATCH = ("x-warmroute-priority", "batch")
EVERY = "1s"
"""Scrapes and evaluations."""

SMALL = EngineConfig(kv_tokens=6_400)
"""A cache that a few chats fill, so that something is evicted."""

MAY_BE_EMPTY = {
    "job:warmroute_hit_ratio:past1d": "there is no past day, and its last hour is left out",
}
"""Everything else has data under this traffic. An entry that has data, or asks nothing, is stale."""


class Traffic:
    """Chats through two routers, and one of everything that is counted beside them."""

    def __init__(self, stage: Stage, routers: list[Router], clients: list[Client], replicas: list[SimReplica]) -> None:
        self._stage = stage
        self._routers = routers
        self._clients = clients
        self._replicas = replicas
        self._number = 0

    @property
    def finished(self) -> int:
        return sum(len(router.records.finished) for router in self._routers)

    async def wait_in_the_queue(self) -> None:
        """Let requests of both priorities wait in the first router, while the engines stand still."""
        router = self._routers[0]
        for replica in self._replicas:
            replica.state.driver.freeze()
        clients = [await self._stage.client(router) for _ in range(12)]
        for number, client in enumerate(clients):
            headers = [AUTH, BATCH] if number % 2 else [AUTH]
            client.send(chat(f"{number} " + "a long prompt, " * 500, headers=headers, stream=True))
        await router.until(lambda: len(router.house.plane.admission.queue) > 3, "nobody waits")
        for replica in self._replicas:
            replica.state.driver.thaw()
        for client in clients:
            assert (await client.answer()).status == 200
            client.leave()

    async def go(self) -> None:
        """Chats of three turns, one that changes its beginning, new prompts, and failures."""
        for router, client in zip(self._routers, self._clients, strict=True):
            for stream in (True, False):
                await self._talk(client, stream=stream)
            await self._changed_prefix(client)
            for length in (60, 300, 900):
                self._number += 1
                fresh = text(self._number, length)
                await self._ask(client, {"messages": [{"role": "user", "content": fresh}], "stream": True})
            assert await self._status(client, {"model": "nobody-has-it", "messages": []}) == 404
            await self._fail(router, client)

    async def _fail(self, router: Router, client: Client) -> None:
        """One attempt is reset, and made good elsewhere; one answer is the engine's 500."""
        failed = len(router.records.failed)
        self._replicas[0].faults.set(Fault(FaultKind.RESET_BEFORE_FIRST_BYTE))
        while len(router.records.failed) == failed:
            await self._new(client)
        self._replicas[0].faults.clear()
        for replica in self._replicas:
            replica.faults.set(Fault(FaultKind.STATUS, status=500))
        self._number += 1
        message = {"role": "user", "content": text(self._number)}
        assert await self._status(client, {"model": "sim-model", "messages": [message]}) == 500
        for replica in self._replicas:
            replica.faults.clear()

    async def _new(self, client: Client) -> None:
        self._number += 1
        await self._ask(client, {"messages": [{"role": "user", "content": text(self._number)}]})

    async def _talk(self, client: Client, *, stream: bool) -> None:
        self._number += 1
        talk = ChatTalk(self._number, stream=stream)
        for _ in range(3):
            talk.take(await self._ask(client, talk.ask(), [] if stream else [BATCH]))

    async def _changed_prefix(self, client: Client) -> None:
        self._number += 1
        history: list[dict[str, Any]] = []
        for turn in range(3):
            opening = {"role": "system", "content": f"It is {turn} o'clock. {text(self._number)}"}
            history.append({"role": "user", "content": text(self._number * 1000 + turn)})
            answer = await self._ask(client, {"messages": [opening, *history]})
            history.append(answer.json()["choices"][0]["message"])

    async def _ask(self, client: Client, body: dict[str, Any], headers: HeaderLines = ()) -> Any:
        whole = {"model": "sim-model", "max_tokens": 16, "stream_options": {"include_usage": True}} | body
        if not whole.get("stream"):
            del whole["stream_options"]
        answer = await client.ask(request(CHAT, whole, headers=[AUTH, *headers]))
        assert answer.status == 200, answer.body
        return answer

    async def _status(self, client: Client, body: dict[str, Any]) -> int:
        return (await client.ask(request(CHAT, body, headers=[AUTH]))).status


async def test_every_query_is_answered_and_what_must_have_data_has(stage: Stage, tmp_path: Path) -> None:
    with running_redis() as url:
        replicas = await stage.replicas(3, engine=SMALL)
        sharing = {"redis": url, "redis_secret": "correct horse", "redis_deadline_ms": 500}
        settings: dict[str, Any] = sharing | {"api_keys": KEY, "queue_depth_s": 0.05, "scrape_interval_s": 0.2}
        routers = [await stage.router(*replicas, watched=True, **settings) for _ in range(2)]
        for router in routers:
            await know_each_other(router, len(routers))
            await router.until(lambda router=router: _knows_capacity(router))  # type: ignore[misc]
        traffic = Traffic(stage, routers, [await stage.client(router) for router in routers], replicas)
        targets = [f"127.0.0.1:{(await router.admin()).base_url.port}" for router in routers]
        async with running_prometheus(scraped_by(targets, EVERY), tmp_path) as prometheus:
            await _scraped(prometheus, "sum(up) == 2")
            await traffic.wait_in_the_queue()
            await traffic.go()
            await _scraped(prometheus, f"sum(warmroute_requests_total) == {traffic.finished}")
            await traffic.go()
            await _scraped(prometheus, f"sum(warmroute_requests_total) == {traffic.finished}")
            await _recorded(prometheus)
            await _ask_everything(prometheus)
            await _check_rules(prometheus)
        await stage.clear()


def _knows_capacity(router: Router) -> bool:
    return all(replica.report.kv_tokens for replica in router.house.fleet)


async def _scraped(prometheus: Prometheus, condition: str) -> None:
    """Wait until what Prometheus has scraped fulfils a condition."""

    async def holds() -> bool:
        return bool(await prometheus.values(condition))

    await eventually(holds, f"not yet {condition}")


async def _recorded(prometheus: Prometheus) -> None:
    """Wait until every rule that has something to record has done so."""
    for name in recorded():
        if name not in MAY_BE_EMPTY:
            await _scraped(prometheus, name)


async def _ask_everything(prometheus: Prometheus) -> None:
    everything = [*asked_by_rules(), *asked_by_boards()]
    quiet = {rule["alert"] for rule in alerts()}
    empty = {asked.where for asked in everything if not await _has_data(prometheus, asked)} - quiet
    assert empty - set(MAY_BE_EMPTY) == set(), "no data"
    assert set(MAY_BE_EMPTY) - empty == set(), "these have data, or ask nothing any more"


async def _has_data(prometheus: Prometheus, asked: Asked) -> bool:
    if asked.variable_of:
        return bool(await prometheus.get(f"label/{asked.variable_of}/values", **{"match[]": asked.expr}))
    if asked.instant:
        return bool(await prometheus.values(asked.expr))
    now_s = float((await prometheus.get("query", query="time()"))["result"][0])
    times = {"start": str(now_s - 10), "end": str(now_s), "step": "1"}
    found = await prometheus.get("query_range", query=asked.expr, **times)
    return any(text != "NaN" for row in found["result"] for _, text in row["values"])


async def _check_rules(prometheus: Prometheus) -> None:
    """No rule has failed, and under traffic that is well no alert is pending but those that failures bring about."""
    groups = (await prometheus.get("rules"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == len(asked_by_rules())
    assert [rule for rule in rules if rule["health"] != "ok" or rule.get("lastError")] == []
