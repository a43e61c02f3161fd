"""docker-compose.yml at work: each service's process as the file says, in a network with its names and ports."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
import yaml

from tests.deploy.compose.containers import Project, until_nothing_is_amiss
from tests.deploy.compose.project import Service, default_profiles, services
from tests.deploy.shipped import asked_by_boards, rules
from tests.deploy.tools import Prometheus
from tests.rig.network import Network
from tests.rig.sharing import PATIENT_MS
from tests.rig.talks import ChatTalk

PROMETHEUS_FILE = "/etc/prometheus/prometheus.yml"
SOON = "1s"
"""In place of the 15 s between scrapes and evaluations."""


TOKEN = {"authorization": "Bearer warmroute-dev"}


class User:
    """Somebody at the machine: HTTP to its published ports."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._clients: dict[int, httpx.AsyncClient] = {}

    async def at(self, port: int) -> httpx.AsyncClient:
        if port not in self._clients:
            place = await self._network.outside(self._network.machine, port, "127.0.0.1")
            self._clients[port] = httpx.AsyncClient(base_url=f"http://{place}", trust_env=False, timeout=20)
        return self._clients[port]

    async def turn(self, talk: ChatTalk, port: int) -> httpx.Response:
        body = {"model": "sim-model", "max_tokens": 4} | talk.ask()
        answer = await (await self.at(port)).post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        talk.history.append(answer.json()["choices"][0]["message"])
        return answer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients.values():
            await client.aclose()


@pytest.mark.timeout(150)  # nine processes, on two cores with other tests beside them
async def test_it_starts_serves_shares_is_seen_survives_and_stops(tmp_path: Path) -> None:
    async with Network() as network, User(network) as user:
        project = Project(network, _patient(services(*default_profiles())), tmp_path)
        _scrape_soon(project, tmp_path / "prometheus.yml")
        await project.up()
        await _restricted(project)
        await _all_engines_are_found(user, 3)
        await _a_follow_up_is_warm_on_the_other_router(user)
        await _a_terminal_shows_it(project)
        await _prometheus_sees_all(Prometheus(await user.at(9190)))
        await _a_lost_engine_costs_nothing(project, network, user)
        await _a_lost_valkey_costs_nothing(project, user)
        await _it_stops_in_time_and_ends_its_answers(project, user)


def _patient(found: dict[str, Service]) -> dict[str, Service]:
    """Routers that wait longer than 5 ms for what Valkey says: a busy machine does not make it slow."""
    longer = {"WARMROUTE_REDIS_DEADLINE_MS": str(PATIENT_MS)}
    routers = {name: service for name, service in found.items() if "router" in service.aliases}
    patient = {name: replace(it, environment={**it.environment, **longer}) for name, it in routers.items()}
    return found | patient


def _scrape_soon(project: Project, file: Path) -> None:
    config = yaml.safe_load(project.stand_in("prometheus", PROMETHEUS_FILE, file).read_text())
    config["global"] |= {"scrape_interval": SOON, "evaluation_interval": SOON}
    file.write_text(yaml.safe_dump(config))


async def _restricted(project: Project) -> None:
    """The processes really were started as the file says: they can write nowhere else, and are nobody."""
    for container in project.containers.values():
        for folder in ("/", "/etc", "/usr"):
            code, said = await container.exec("/bin/sh", "-c", f"echo > {folder}/file")
            assert (code != 0, "Read-only" in said) == (True, True), (container.host.name, folder, said)
        _, status = await container.exec("cat", "/proc/1/status")
        assert "\nCapBnd:\t0000000000000000\n" in status
        assert "\nNoNewPrivs:\t1\n" in status
        assert "\nUid:\t0\t" not in status


async def _all_engines_are_found(user: User, count: int) -> None:
    for port in (9090, 9091):
        admin = await user.at(port)
        refused = await admin.get("/api/fleet")
        assert refused.status_code == 401

        async def lacks(admin: httpx.AsyncClient = admin) -> str:
            fleet = (await admin.get("/api/fleet", headers=TOKEN)).json()
            ready = [replica for replica in fleet["replicas"] if replica["state"] == "ready"]
            complete = len(ready) == count and len(fleet["routers"]) == 2
            return "" if complete else f"not {count} replicas and two routers: {fleet}"

        await until_nothing_is_amiss(lacks)


async def _a_follow_up_is_warm_on_the_other_router(user: User) -> None:
    for number, (first, second) in enumerate([(8080, 8081), (8081, 8080)] * 2):
        talk = ChatTalk(number, stream=False)
        began = await user.turn(talk, first)
        went_on = await user.turn(talk, second)
        assert went_on.headers["x-warmroute-decision"] == "warm"
        assert went_on.headers["x-warmroute-replica"] == began.headers["x-warmroute-replica"]
        assert went_on.json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


async def _a_terminal_shows_it(project: Project) -> None:
    code, said = await project["router-1-1"].exec("warmroute", "top", "--once")
    assert code == 0, said
    assert "sim-model" in said or "prompt tokens" in said


async def _prometheus_sees_all(prometheus: Prometheus) -> None:
    async def uncounted() -> str:
        counted = await prometheus.values('sum(warmroute_requests_total{job="warmroute"})')
        return "" if counted == [8] else f"of 8 requests are counted {counted}"

    await until_nothing_is_amiss(uncounted)
    targets = (await prometheus.get("targets"))["activeTargets"]
    assert {target["labels"]["instance"]: target["health"] for target in targets} == {
        "router-1:9090": "up",
        "router-2:9090": "up",
    }
    groups = (await prometheus.get("rules"))["groups"]
    assert sum(len(group["rules"]) for group in groups) == len(rules())
    for asked in asked_by_boards():
        if not asked.variable_of:
            await prometheus.get("query", query=asked.expr)
    assert await prometheus.values("count(warmroute_replica_state == 1)"), "no replica in what the dashboards ask"


async def _a_lost_engine_costs_nothing(project: Project, network: Network, user: User) -> None:
    await network.remove(project["sim-2"].host)
    for number in range(6):
        await user.turn(ChatTalk(100 + number, stream=False), 8080 + number % 2)
    await _all_engines_are_found(user, 2)


async def _a_lost_valkey_costs_nothing(project: Project, user: User) -> None:
    talk = ChatTalk(200, stream=False)
    await user.turn(talk, 8080)
    project["valkey-1"].signal(signal.SIGKILL)
    assert await project["valkey-1"].running.wait() == 128 + signal.SIGKILL
    again = await user.turn(talk, 8080)
    assert again.headers["x-warmroute-decision"] == "warm"
    for port in (8080, 8081):
        await user.turn(ChatTalk(port, stream=False), port)
    for name in ("router-1-1", "router-2-1"):
        assert (await project[name].check())[0] == 0, "unhealthy without Valkey"


async def _it_stops_in_time_and_ends_its_answers(project: Project, user: User) -> None:
    body = {"model": "sim-model", "max_tokens": 100, **ChatTalk(300, stream=True).ask()}
    client = await user.at(8080)
    async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = answer.aiter_lines()
        assert (await anext(lines)).startswith("data: ")
        stopping = asyncio.ensure_future(project["router-1-1"].stop())
        rest = [line async for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert len(rest) > 5, "it was not under way any more"
    assert await stopping == 0
    ends = {name: await it.stop() for name, it in project.containers.items() if not it.running.ended}
    expected: dict[str, Any] = {"router-2-1": 0, "prometheus-1": 0, "sim-1": 0, "sim-3": 0}
    assert ends == expected
