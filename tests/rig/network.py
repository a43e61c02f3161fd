"""A network of several hosts on this machine: each is a network namespace on one bridge, with processes of its own.

    async with Network() as network:
        engine = await network.host("engine-1", addresses=["10.0.0.1"])
        router = await network.host("router", "gateway")
        serving = await router.start(["warmroute", "serve", "--replica", "http://engine-1:8000"])
        await serving.says("clients ")
        done = await network.machine.run(["curl", "-s", "http://router:8080/health"])

Any address can be given to a host: all of them are neighbours, and nothing leads out of the network. Names are in every
host's /etc/hosts, and in the DNS that every host's /etc/resolv.conf names; a name that several hosts share has all of
their addresses. `network.machine` is the host with the bridge, as the machine is under which containers run.

It needs root, `ip`, `unshare` and `nsenter`. Everything is in namespaces that end with their first process, and that
ends with the test, or when the program that runs it is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Self

from tests.adapters.discovery.name_server import NameServer
from tests.rig.client import DEADLINE_S
from tests.rig.inside import Host, enter
from tests.rig.programs import absent
from tests.rig.relayed import Relay

REQUIRED = "REQUIRE_NETWORK"
"""Where this variable is set, a machine that has no namespaces is a failure."""

PROGRAMS = ("ip", "unshare", "nsenter")
DNS_PORT = 53
BRIDGE_MAC = "02:00:00:00:00:01"
"""Without one of its own a bridge has the lowest of its ports', another one with each host that comes or goes, and
neighbours that remember the last one reach nobody for some seconds."""

SUBNET = "10.89"
"""The first half of the addresses of hosts that ask for none."""

_UNSHARED = ("--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")


@functools.cache
def missing() -> str:
    """What this machine lacks, or nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if absent := [name for name in PROGRAMS if shutil.which(name) is None]:
        return f"not installed: {', '.join(absent)} (on Debian: iproute2, util-linux)"
    command = ["unshare", *_UNSHARED, "ip", "link", "add", "br0", "type", "bridge"]
    tried = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    return f"no network namespaces here: {tried.stderr.strip()}" if tried.returncode else ""


def require_network() -> None:
    """Skip the test on a machine that can't do this, or fail it where REQUIRE_NETWORK is set."""
    if reason := missing():
        absent(reason, REQUIRED)


class Network:
    """Hosts on one bridge. Names and addresses are known to all hosts at once."""

    machine: Host
    dns_address: str

    def __init__(self) -> None:
        self.hosts: dict[str, Host] = {}
        """By name, in the order in which they came; without the machine."""
        self.dns = NameServer()
        """What hosts are told of names; what was asked of it."""
        self._stack = contextlib.AsyncExitStack()
        self._folder = Path()
        self._given = 0

    async def __aenter__(self) -> Self:
        require_network()
        async with contextlib.AsyncExitStack() as stack:
            folder = tempfile.TemporaryDirectory(prefix="warmroute-network-", ignore_cleanup_errors=True)
            self._folder = Path(stack.enter_context(folder))
            self._folder.chmod(0o755)
            address = self.dns_address = self._next_address()
            (self._folder / "resolv.conf").write_text(f"nameserver {address}\n")
            self._write_names()
            self.machine = await stack.enter_async_context(self._namespace("machine", (), [address]))
            bridge = f"link add br0 address {BRIDGE_MAC} type bridge\nlink set br0 up\n"
            await self._ip(bridge + _addressed([address], "br0"), self.machine)
            tcp, udp = self.machine.listening(address, DNS_PORT), self.machine.make_socket(socket.SOCK_DGRAM)
            udp.bind((address, DNS_PORT))
            await self.dns.listen(tcp, udp)
            stack.push_async_exit(self.dns)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def host(self, name: str, *aliases: str, addresses: Sequence[str] = ()) -> Host:
        """Add a host. Without addresses it gets one of its own."""
        assert name not in self.hosts, f"there is a host {name} already"
        given = list(addresses) or [self._next_address()]
        host = await self._stack.enter_async_context(self._namespace(name, aliases, given))
        port = f"v{len(self.hosts)}-{host.pid}"
        await self._ip(f"link add {port} type veth peer name eth0 netns {host.pid}\n", self.machine)
        await self._ip(f"link set {port} master br0 up\n", self.machine)
        await self._ip(f"link set eth0 up\n{_addressed(given, 'eth0')}", host)
        self.hosts[name] = host
        self._write_names()
        return host

    async def remove(self, host: Host) -> None:
        """Take a host away from one moment to the next, with all that runs on it."""
        del self.hosts[host.name]
        self._write_names()
        await host.end()

    async def publish(self, port: int, host: Host, host_port: int, address: str = "127.0.0.1") -> None:
        """Let a port of the machine be one of the host's, as containers' ports are published."""
        relay = Relay(self.machine.listening(address, port), lambda: self._connected(host, host_port))
        await self._stack.enter_async_context(relay)

    async def outside(self, host: Host, port: int, address: str | None = None) -> str:
        """HOST:PORT under which the test itself, which is in none of these hosts, reaches a port of one.

        With an address it is that one as the host sees it, such as 127.0.0.1.
        """
        here = socket.create_server(("127.0.0.1", 0))
        if address is None:
            relay = Relay(here, lambda: self._connected(host, port))
        else:
            relay = Relay(here, lambda: host.connected(address, port))
        await self._stack.enter_async_context(relay)
        return f"127.0.0.1:{here.getsockname()[1]}"

    async def _connected(self, host: Host, port: int) -> socket.socket:
        return await self.machine.connected(host.addresses[0], port)

    @contextlib.asynccontextmanager
    async def _namespace(self, name: str, aliases: Iterable[str], addresses: list[str]) -> AsyncIterator[Host]:
        process = await asyncio.create_subprocess_exec(
            "unshare", *_UNSHARED, "sh", "-c", _FIRST, name, name, self._folder,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        if not await process.stdout.readline():
            raise RuntimeError(f"no host {name}: {(await process.stderr.read()).decode()}")
        host = Host(name, tuple(aliases), addresses, process)
        try:
            yield host
        finally:
            await host.end()

    async def _ip(self, lines: str, host: Host) -> None:
        """Run commands of ip in a host's network; not in its process namespace, where other hosts have no number."""
        process = await asyncio.create_subprocess_exec(
            *enter(host.pid, "--net"), "ip", "-batch", "-",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        said, _ = await process.communicate(lines.encode())
        assert process.returncode == 0, f"{lines}: {said.decode()}"

    def _next_address(self) -> str:
        self._given += 1
        return f"{SUBNET}.{self._given // 250}.{self._given % 250}"

    def _write_names(self) -> None:
        """Write what all hosts have as /etc/hosts (the same file: it must not be replaced), and the DNS likewise."""
        addresses: dict[str, list[str]] = {}
        for host in self.hosts.values():
            for name in (host.name, *host.aliases):
                addresses.setdefault(name, []).extend(host.addresses)
        lines = ["127.0.0.1 localhost", *(f"{value} {name}" for name, values in addresses.items() for value in values)]
        (self._folder / "hosts").write_text("\n".join(lines) + "\n")
        self.dns.records.clear()
        for name, values in addresses.items():
            for value in values:
                kind = "AAAA" if ":" in value else "A"
                self.dns.records.setdefault((f"{name.lower()}.", kind), []).append(value)


_FIRST = """
set -e
hostname "$1"
mount --bind "$2/hosts" /etc/hosts
mount --bind "$2/resolv.conf" /etc/resolv.conf
ip link set lo up
echo ready
exec cat >/dev/null
"""
"""The first process of a host. It ends when nobody can write to it any more, and all others of the host with it."""


def _addressed(addresses: Iterable[str], device: str) -> str:
    """Commands that give a device these addresses, and make all others neighbours."""
    lines, everywhere = [], set()
    for address in addresses:
        # Looking whether another host has an address of IPv6 would take a second.
        lines.append(f"address add {address} dev {device}{' nodad' if ':' in address else ''}")
        everywhere.add("::/0" if ":" in address else "0.0.0.0/0")
    lines += [f"route add {all_others} dev {device}" for all_others in everywhere]
    return "".join(f"{line}\n" for line in lines)
