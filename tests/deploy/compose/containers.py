"""The containers of docker-compose.yml without an engine for them: each is a host of a network and a root of its own.

The root has this machine's programs, and else what the file says: volumes, tmpfs, a read-only root, no capabilities,
the user. The process is number 1 there, as in a container. In place of valkey-server there is a redis-server.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from tests.contract.pages import ROOT
from tests.deploy.compose.project import Mount, Service, entrypoint, image_environment, source_of
from tests.deploy.tools import program
from tests.redis_server import redis_server_path
from tests.rig import programs
from tests.rig.inside import Host, Running, children, enter
from tests.rig.network import REQUIRED, Network
from tests.rig.sharing import eventually

DEADLINE_S = 60.0
"""Nine programs start at once, on two cores with other tests beside them."""

LOOK_S = 0.2
"""Between two looks at a process of another program: each takes some milliseconds of its time, or starts one."""
PROGRAMS = "/run/programs"
PATH = f"{PROGRAMS}:/usr/local/bin:/usr/bin:/bin"
NOT_HERE = ("grafana/grafana", "vllm/vllm-openai")
"""Images whose program can't be had here."""

_ENTRYPOINTS = {"warmroute": entrypoint(), "valkey/valkey": [], "prom/prometheus": ["prometheus"]}
_USERS = {"warmroute": 65532, "valkey/valkey": 999, "prom/prometheus": 65534}
"""Who images run as: of our Dockerfile; `user:` of the file; nobody."""

_SYSTEM = ("/usr", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/resolv.conf", "/etc/ssl")
_DROPPED = ("--clear-groups", "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all")


def bwrap() -> str:
    return programs.program("bwrap", "on Debian: apt install bubblewrap", REQUIRED)


async def until_nothing_is_amiss(look: Callable[[], Awaitable[str]]) -> None:
    """Look until it says nothing; what it said last fails the test."""
    last = ""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                last = await look()
                if not last:
                    return
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise AssertionError(last) from None


class Container:
    """One container, and the volumes that it shares with others of its project."""

    def __init__(self, service: Service, host: Host, folder: Path, stand_ins: Mapping[str, Path]) -> None:
        self.service = service
        self.host = host
        self._folder = folder
        self._stand_ins = stand_ins
        """Target -> what is mounted there in place of what the file says."""
        self._running: Running | None = None
        self.pid = 0

    @property
    def running(self) -> Running:
        assert self._running is not None
        return self._running

    @property
    def _user(self) -> int:
        return _USERS[self.service.image]

    async def start(self) -> None:
        """Start its process."""
        argv = [*_ENTRYPOINTS[self.service.image], *self.service.command]
        command = [bwrap(), "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--as-pid-1", "--clearenv"]
        for name, value in self._environment().items():
            command += ["--setenv", name, value]
        command += [*self._root(), "--", *self._as_user(), *argv]
        self._running = await self.host.start(command)

        async def found() -> bool:
            assert not self.running.ended, self.running.written
            self.pid = next(iter(children(self.running.pid)), 0)
            return bool(self.pid)

        await eventually(found, "bwrap has no child")

    def _environment(self) -> dict[str, str]:
        ours = image_environment() if self.service.image == "warmroute" else {}
        return {"PATH": PATH, "HOME": "/", **ours, **self.service.environment}

    def _as_user(self) -> list[str]:
        user = f"--reuid={self._user}", f"--regid={self._user}"
        return ["setpriv", *user, *_DROPPED, "--no-new-privs", "--"]

    def _root(self) -> list[str]:
        """Options of bwrap that put the container's root together."""
        placed: list[tuple[str, str, str]] = []
        for folder in (*_SYSTEM, sys.base_prefix, sys.prefix, str(ROOT / "router")):
            placed.append(("--ro-bind-try", folder, folder))
        for name, path in _programs(self.service.image).items():
            placed.append(("--ro-bind", self._executable(path), f"{PROGRAMS}/{name}"))
        placed += [self._mounted(mount) for mount in self.service.mounts]
        options = [word for folder in _parents([target for *_, target in placed]) for word in ("--dir", folder)]
        options += [word for words in placed for word in words]
        for name in ("bin", "sbin", "lib", "lib64"):
            path = Path("/", name)
            options += ["--symlink", str(path.readlink()), str(path)] if path.is_symlink() else []
        options += ["--proc", "/proc", "--dev", "/dev"]
        for target in self.service.raw.get("tmpfs", []):
            options += ["--perms", "1777", "--tmpfs", target.removesuffix(":mode=1777")]
        return [*options, *(["--remount-ro", "/"] if self.service.raw.get("read_only") else [])]

    def _mounted(self, mount: Mount) -> tuple[str, str, str]:
        if mount.is_bind:
            source = self._stand_ins.get(mount.target) or source_of(mount)
        else:
            source = self._folder / mount.source
            source.mkdir(exist_ok=True)
            os.chown(source, self._user, self._user)
        return "--ro-bind" if mount.read_only else "--bind", str(source), mount.target

    def _executable(self, path: Path) -> str:
        """The program, or a copy that everybody may execute: a wheel's redis-cli is root's."""
        if path.stat().st_mode & 0o001:
            return str(path)
        copied = self._folder / path.name
        shutil.copy(path, copied)
        copied.chmod(0o755)
        return str(copied)

    async def exec(self, *argv: str) -> tuple[int, str]:
        """Run a command in it, as `docker compose exec` does: its exit code, and all it wrote."""
        environment = [f"{name}={value}" for name, value in self._environment().items()]
        process = await asyncio.create_subprocess_exec(
            *enter(self.pid, "--net", "--mount", "--ipc", "--pid"), *self._as_user(), "env", "-i", *environment, *argv,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        out, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode("utf-8", "replace")

    async def check(self) -> tuple[int, str]:
        """Run the health check's command once."""
        how, *words = self.service.raw["healthcheck"]["test"]
        return await (self.exec("/bin/sh", "-c", *words) if how == "CMD-SHELL" else self.exec(*words))

    async def healthy(self) -> None:
        """Wait until its health check says so. Checks follow each other more quickly than in the file."""

        async def well() -> str:
            assert not self.running.ended, f"{self.host.name} has ended: {self.running.written}"
            code, said = await self.check()
            return f"{self.host.name} is not healthy: {said}: {self.running.written}" if code else ""

        await until_nothing_is_amiss(well)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    async def stop(self) -> int:
        """Stop it as Compose does; its exit code. One that takes longer than its grace fails the test."""
        self.signal(signal.SIGTERM)
        return await self.running.wait(self.service.stop_grace_s)


class Project:
    """The containers that can be had here, started in their order, with their ports published."""

    def __init__(self, network: Network, services: Mapping[str, Service], folder: Path) -> None:
        self._network = network
        self._services = services
        self._folder = folder
        self.stand_ins: dict[str, Path] = {}
        self.containers: dict[str, Container] = {}

    async def up(self) -> None:
        """Start all, each once what it depends on is as far as it asks for, and wait until all are healthy."""
        self._folder.chmod(0o755)
        for name in _in_order({name: it for name, it in self._services.items() if it.image not in NOT_HERE}):
            service = self._services[name]
            for needed, condition in service.waits_for.items():
                for container in self.of(needed):
                    assert condition in ("service_healthy", "service_started")
                    await (container.healthy() if condition == "service_healthy" else asyncio.sleep(0))
            for container_name in service.containers:
                host = await self._network.host(container_name, name, *service.aliases)
                container = Container(service, host, self._folder, self.stand_ins)
                self.containers[container_name] = container
                await container.start()
                for port in service.ports:
                    await self._network.publish(port.published, host, port.target, port.address)
        for container in self.containers.values():
            await container.healthy()

    def stand_in(self, service: str, target: str, file: Path) -> Path:
        """Mount a file in place of the one that a service mounts there; returns that one."""
        (mount,) = [mount for mount in self._services[service].mounts if mount.target == target]
        self.stand_ins[target] = file
        return source_of(mount)

    def of(self, service: str) -> list[Container]:
        return [container for container in self.containers.values() if container.service.name == service]

    def __getitem__(self, name: str) -> Container:
        return self.containers[name]


def _in_order(services: Mapping[str, Service]) -> list[str]:
    """What others wait for comes first."""
    order: list[str] = []

    def add(name: str) -> None:
        if name not in order and name in services:
            for needed in services[name].waits_for:
                add(needed)
            order.append(name)

    for name in services:
        add(name)
    return order


def _parents(targets: list[str]) -> list[str]:
    """The folders that they are in, outermost first: those that bwrap makes by itself are for root only."""
    found = {str(parent) for target in targets for parent in Path(target).parents}
    return sorted(folder for folder in found if folder != "/" and not folder.startswith("/usr"))


def _programs(image: str) -> dict[str, Path]:
    """Name -> where it is here, of what the image brings and this machine has elsewhere."""
    if image == "warmroute":
        return {"warmroute": Path(sys.executable).parent / "warmroute"}
    if image == "valkey/valkey":
        server = Path(redis_server_path())
        return {"valkey-server": server, "valkey-cli": server.with_name("redis-cli")}
    return {"prometheus": Path(program("prometheus"))}
