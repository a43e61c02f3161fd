"""The rendered pods, run as processes: they become ready, find engines, share what they know, and drain."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.deploy.kubernetes.cluster import Cluster, cluster
from tests.deploy.kubernetes.rendered import Workload, workloads
from tests.deploy.kubernetes.routers import SECRETS, probes
from tests.rig.inside import Host
from tests.rig.sharing import eventually

pytestmark = pytest.mark.timeout(120)

CHAT = [
    {"role": "system", "content": "You answer questions about trains. " * 200},
    {"role": "user", "content": "When does one leave?"},
]


@pytest.fixture
async def llm(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path) as made:
        yield made


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=30) as made:
        yield made


class Asked:
    """A port of a host, as a client outside sees it."""

    def __init__(self, client: httpx.AsyncClient, at: str) -> None:
        self._client, self._url = client, f"http://{at}"

    async def get(self, path: str, **headers: str) -> int:
        try:
            return (await self._client.get(self._url + path, headers=headers)).status_code
        except httpx.TransportError:
            return 0

    async def is_200(self, path: str) -> bool:
        return await self.get(path) == 200

    async def is_503(self, path: str) -> bool:
        return await self.get(path) == 503

    async def chat(self, messages: list[dict[str, str]]) -> httpx.Response:
        body = {"model": "sim-model", "messages": messages, "max_tokens": 4}
        answer = await self._client.post(self._url + "/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        messages.append(answer.json()["choices"][0]["message"])
        return answer


def workload(overlay: str, name: str) -> Workload:
    (found,) = [each for each in workloads(overlay) if each.name == name]
    return found


async def engines(llm: Cluster) -> list[Host]:
    """Start Redis and two of the simulated engines."""
    await llm.deployment(workload("try", "warmroute-redis"), 1, "warmroute-redis")
    hosts = await llm.deployment(workload("try", "vllm"), 2)
    llm.show(hosts)
    return hosts


async def listening(*hosts: Host) -> None:
    """Wait until what was started last on each has its ports."""
    for host in hosts:
        await host.running[-1].says(r"http://0\.0\.0\.0:|http://127\.0\.0\.1:")


async def test_two_routers_become_ready_share_a_chat_and_drain(llm: Cluster, client: httpx.AsyncClient) -> None:
    backends = await engines(llm)
    deployment = workload("try", "warmroute")
    first, second = await llm.deployment(deployment, 2)
    await listening(*backends, first, second)
    (container,) = deployment.containers
    ports: dict[Host, dict[str, Asked]] = {}
    for host in (first, second):
        ports[host] = {
            name: Asked(client, await llm.network.outside(host, port)) for name, port in container.ports.items()
        }
        for kind, probe in probes(container).items():
            asked, path = ports[host][probe["httpGet"]["port"]], probe["httpGet"]["path"]
            await eventually(partial(asked.is_200, path), f"{host.name}: {kind} never holds")
    assert await ports[first]["admin"].get("/api/fleet") == 401
    token = SECRETS["admin-token"]
    assert await ports[first]["admin"].get("/api/fleet", authorization=f"Bearer {token}") == 200
    assert await ports[first]["admin"].get("/metrics") == 200

    messages = list(CHAT)
    turn = await ports[first]["http"].chat(messages)
    messages.append({"role": "user", "content": "And the next one?"})
    again = await ports[second]["http"].chat(messages)
    assert again.headers["x-warmroute-decision"] == "warm"
    assert again.headers["x-warmroute-replica"] == turn.headers["x-warmroute-replica"]

    first.running[-1].signal(signal.SIGTERM)
    await eventually(partial(ports[first]["http"].is_503, "/readyz"), "it does not say that it leaves")
    messages.append({"role": "user", "content": "And the one after that?"})
    last = await ports[first]["http"].chat(messages)
    assert last.headers["connection"] == "close"
    assert await ports[first]["admin"].is_200("/livez")


async def test_the_sidecar_serves_the_container_beside_it_and_nobody_else(llm: Cluster) -> None:
    await engines(llm)
    deployment = workload("sidecar", "chat-application")
    router, application = deployment.containers
    pod = await llm.pod("chat-application")
    await llm.start(pod, deployment, router)
    await listening(pod)
    probed = await pod.run(probes(router)["startupProbe"]["exec"]["command"])
    assert probed.code == 0, probed.err
    chatting = await llm.start(pod, deployment, application, PAUSE_S="0.05")
    await chatting.says(r"turn 2: warm, [1-9]\d* tokens cached\n")
    for port in (8080, 9090):
        with pytest.raises(ConnectionRefusedError):
            await llm.network.machine.connected(pod.addresses[0], port)
