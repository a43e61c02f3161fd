"""A cluster of processes: pods' own commands, variables and files, hosts in place of pods, an API server of ours."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import trustme

from tests.adapters.discovery.kubernetes_objects import endpoint, endpoint_slice
from tests.deploy.kubernetes.rendered import Container, Workload
from tests.deploy.kubernetes.routers import variables, written
from tests.redis_server import redis_server_path
from tests.rig.inside import Host, Running
from tests.rig.kubernetes import FakeKubernetes
from tests.rig.network import Network
from tests.rig.relayed import Relay

API_SERVER, API_PORT = "10.96.0.1", 443
ACCOUNT = "secrets/kubernetes.io/serviceaccount"
NAMESPACE, TOKEN = "llm", "a-token-of-the-account"


@dataclass
class Cluster:
    """A namespace with its pods."""

    network: Network
    kubernetes: FakeKubernetes
    folder: Path

    async def pod(self, name: str, *aliases: str) -> Host:
        """A host with the account's token, as the kubelet puts it there."""
        host = await self.network.host(name, *aliases)
        # In the host's own mounts. /var/run leads to /run.
        target = f"/run/{ACCOUNT}"
        script = f"mount -t tmpfs none /run && mkdir -p {target} && mount --bind {self.folder / ACCOUNT} {target}"
        done = await host.run(["sh", "-ec", script])
        assert done.code == 0, done.err
        return host

    async def start(self, host: Host, workload: Workload, container: Container, **more: str) -> Running:
        """Start a container of a pod, with more variables."""
        words = written(workload, container, self.folder / host.name)
        env = {key: each["value"] for key, each in container.env.items() if "value" in each}
        api = {"KUBERNETES_SERVICE_HOST": API_SERVER, "KUBERNETES_SERVICE_PORT": str(API_PORT)}
        return await host.start(program(container, words), env=env | variables(container) | api | more)

    async def deployment(self, workload: Workload, count: int, *aliases: str) -> list[Host]:
        """Start so many pods of a workload that has one container."""
        (container,) = workload.containers
        hosts = [await self.pod(f"{workload.name}-{number}", *aliases) for number in range(count)]
        for host in hosts:
            await self.start(host, workload, container)
        return hosts

    def show(self, hosts: list[Host]) -> None:
        """Let the API server say that the engines on these hosts are ready."""
        ready = [endpoint(host.addresses[0], f"uid-{host.name}") for host in hosts]
        self.kubernetes.put("endpointslices", endpoint_slice(*ready, namespace=NAMESPACE))


def program(container: Container, words: list[str]) -> list[str]:
    """What the image's entry point makes of a command. Valkey's is run by the redis-server that is there."""
    if words[0] == "valkey-server":
        return [redis_server_path(), *words[1:]]
    return words if "command" in container.spec else ["warmroute", *words]


@contextlib.asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[Cluster]:
    """A cluster without pods. Without namespaces the test is skipped."""
    authority, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(API_SERVER).configure_cert(tls)
    account = folder / ACCOUNT
    account.mkdir(parents=True)
    authority.cert_pem.write_to_path(str(account / "ca.crt"))
    (account / "token").write_text(TOKEN)
    (account / "namespace").write_text(NAMESPACE)
    async with Network() as network, FakeKubernetes(tls) as kubernetes:
        kubernetes.tokens = {TOKEN}
        server = await network.host("api-server", addresses=[API_SERVER])
        async with Relay(server.listening(API_SERVER, API_PORT), lambda: _connected(kubernetes.port)):
            yield Cluster(network, kubernetes, folder)


async def _connected(port: int) -> socket.socket:
    made = socket.socket()
    made.setblocking(False)
    await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
    return made
