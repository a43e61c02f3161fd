"""A reader's machine, and the hosts that a page names: where its `sh host` blocks are run.

The network (tests/rig/network.py) has a host for each name or address that the page's `host` blocks use. By port and
scheme there is behind it: on 8000 a simulated engine, with as many ranks as `?ranks=` says, on 9090 a router's admin
port, at `redis://` a redis-server, on 4318 nothing that answers; `https://` has a certificate that the reader trusts.
`dns:` and `srv:` names are in the DNS. Where a block asks the reader's own machine for an engine, a Redis or a router
that no command of the page starts, it is there.

The reader has an empty folder with chat requests in body.json and request.json, the checkout's deploy/ if the page
speaks of it, tokenizers where it speaks of models/NAME, /etc and /var/lib as of a new machine, and
tests/contract/standing_in.sh as `warmroute`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import trustme

from tests.adapters.tokenizer.tiny import tiny_tokenizer, write_model
from tests.contract.pages import ROOT, Block, blocks
from tests.redis_server import running_redis
from tests.rig.inside import Host, Ran, new_shell
from tests.rig.network import Network
from tests.rig.relayed import Relay
from tests.rig.stage import Stage

READER = "here"
URL = re.compile(r"(?P<scheme>https?|redis)://(?P<host>[\w.-]+):(?P<port>\d+)(?:[^\s'\"]*[?&]ranks=(?P<ranks>\d+))?")
NAME = re.compile(r"\b(?P<kind>dns|srv):(?P<host>[\w.-]+)(?::(?P<port>\d+))?")
STARTS = re.compile(r"\bwarmroute (serve|sim)\b")
OWN = "127.0.0.1"
TOKEN = "a-long-token\n"
"""What a block reads from the keyboard."""

DEADLINE_S = 50.0
"""Four workers with all their imports, beside other tests."""

Connect = Callable[[], Awaitable[socket.socket]]


class Reader:
    """Runs a page's blocks. `ready` first, `leave` at the end."""

    def __init__(self, page: Path, folder: Path, stage: Stage, stack: contextlib.AsyncExitStack) -> None:
        self._stage = stage
        self._stack = stack
        self._blocks = [block for block in blocks(page) if block.mark == "host"]
        self._files = [block for block in blocks(page) if block.mark.startswith("/etc/")]
        self._text = "\n".join(block.text for block in [*self._blocks, *self._files])
        self._folder = folder / "home"
        self._running = folder / "running"
        self._machine = folder / "machine"
        self._ca = trustme.CA()
        self._host: Host

    async def ready(self) -> None:
        """Bring the network up."""
        for folder in (self._folder, self._running, self._machine / "bin"):
            folder.mkdir(parents=True)
        network = await self._stack.enter_async_context(Network())
        wanted = _wanted(self._text)
        hosts = {name: await network.host(name, addresses=[name] * _is_address(name)) for name in wanted}
        self._host = await network.host(READER)
        for name, ports in wanted.items():
            for port, (scheme, ranks) in ports.items():
                await self._answer(hosts[name], "0.0.0.0", port, scheme, ranks)
        for found in NAME.finditer(self._text):
            if found["kind"] == "srv":
                network.dns.records[f"{found['host']}.", "SRV"] = [f"0 0 8000 {next(iter(hosts))}."]
        await self._own_ports()
        await self._furnish()

    async def run(self, block: Block) -> Ran:
        """Run one block in a shell that knows what the blocks before it have exported, as in one terminal."""
        # Without --norc bash takes a socket on its stdin for a remote shell's.
        shell = ["bash", "--norc", "--posix"] if block.language == "bash" else ["sh"]
        exports = self._machine / "exports"
        return await self._do(
            [*shell, "-euc", f". {exports}\n{block.text}\nexport -p >{exports}"], TOKEN * ("read " in block.text)
        )

    async def leave(self) -> Ran:
        """End what the blocks have left running."""
        return await self._do([self._machine / "bin" / "standing-in", "stop"])

    async def fleet(self) -> dict[str, str]:
        """Return URL -> state of the replicas of the router that runs; nothing where a token is wanted."""
        ran = await self._do(["curl", "-sf", f"http://{OWN}:9090/api/fleet"])
        return {one["url"]: one["state"] for one in json.loads(ran.out)["replicas"]} if ran.code == 0 else {}

    async def _do(self, argv: list[str | Path], keyboard: str = "") -> Ran:
        path = f"{self._machine / 'bin'}:{new_shell()['PATH']}"
        programs = self._machine / "programs"
        env = {"PATH": path, "RUNNING": str(self._running), "PROGRAMS": str(programs), "COLUMNS": "100"}
        env["SSL_CERT_FILE"] = str(self._machine / "ca.pem")
        return await self._host.run(argv, env=env, cwd=self._folder, stdin=keyboard, deadline_s=DEADLINE_S)

    async def _answer(self, host: Host, address: str, port: int, scheme: str, ranks: int) -> None:
        """Let something answer on a host's port, as its scheme and number say."""
        connect = await self._behind(port, scheme, ranks)
        if connect is None:
            return
        listening = host.listening(address, port)
        if scheme == "https":
            await self._secured(host.name, listening, connect)
        else:
            await self._stack.enter_async_context(Relay(listening, connect))

    async def _behind(self, port: int, scheme: str, ranks: int) -> Connect | None:
        if scheme == "redis":
            url = self._stack.enter_context(running_redis())
            return _to(int(url.rpartition(":")[2].partition("/")[0]))
        if port == 9090:
            router = await self._stage.router(await self._stage.replica(), admin_token=TOKEN.strip())
            return _to((await router.admin()).base_url.port or 0)
        if port == 8443 or 8000 <= port <= 8007:
            return _to((await self._stage.replica(data_parallel=ranks)).port)
        return None

    async def _own_ports(self) -> None:
        """What answers on the reader's own machine though no block starts it."""
        started = set(STARTS.findall(self._text))
        for found in URL.finditer(self._text):
            engine = found["port"].startswith("800") and "sim" not in started
            if found["host"] == OWN and (found["scheme"] == "redis" or engine):
                ranks = int(found["ranks"] or 1)
                await self._answer(self._host, OWN, int(found["port"]), found["scheme"], ranks)
        if "serve" not in started and re.search(r"warmroute (top|doctor|explain)\b(?!.*://)", self._text):
            router = await self._stage.router(await self._stage.replica(), watched=True)
            for port, there in ((9090, (await router.admin()).base_url.port or 0), (8080, router.port)):
                listening = self._host.listening(OWN, port)
                await self._stack.enter_async_context(Relay(listening, _to(there)))

    async def _secured(self, name: str, listening: socket.socket, connect: Connect) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._ca.issue_cert(name).configure_cert(context)

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far_reader, far_writer = await asyncio.open_connection(sock=await connect())
            ways = [asyncio.ensure_future(_pass(*way)) for way in ((reader, far_writer), (far_reader, writer))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way, end in zip(ways, (writer, far_writer), strict=True):
                way.cancel()
                end.transport.abort()

        self._stack.push_async_callback(_closed, await asyncio.start_server(accepted, sock=listening, ssl=context))

    async def _furnish(self) -> None:
        self._ca.cert_pem.write_to_path(str(self._machine / "ca.pem"))
        for name in ("standing-in", "warmroute", "prometheus"):
            shutil.copy(ROOT / "tests" / "contract" / "standing_in.sh", self._machine / "bin" / name)
            (self._machine / "bin" / name).chmod(0o755)
        (self._machine / "exports").touch()
        (self._machine / "programs").mkdir()
        for name in ("warmroute", "prometheus"):
            if found := shutil.which(name, path=new_shell()["PATH"]):
                (self._machine / "programs" / name).symlink_to(found)
        request = {"model": "sim-model", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
        for name in ("body.json", "request.json"):
            (self._folder / name).write_text(json.dumps(request))
        for name in set(re.findall(r"\bmodels/[\w.-]+", self._text)):
            write_model(self._folder / name, tiny_tokenizer())
        if "deploy" in self._text:
            shutil.copytree(ROOT / "deploy", self._folder / "deploy", ignore=shutil.ignore_patterns("__pycache__"))
        await self._mount()

    async def _mount(self) -> None:
        """Give the reader an /etc that may be written to and an empty /var/lib; nobody else sees them.

        Files that the page shows by name are there; Grafana is installed.
        """
        etc = self._machine / "etc"
        done = await self._host.run(["cp", "-a", "/etc", etc])
        assert done.code == 0, done.err
        (etc / "grafana").mkdir(exist_ok=True)
        for block in self._files:
            file = etc / block.mark.removeprefix("/etc/")
            file.parent.mkdir(exist_ok=True)
            file.write_text(block.text)
        done = await self._host.run(["sh", "-euc", f"mount --bind {etc} /etc; mount -t tmpfs none /var/lib"])
        assert done.code == 0, done.err


def _wanted(text: str) -> dict[str, dict[int, tuple[str, int]]]:
    """Other hosts that a text names -> port -> scheme and ranks."""
    found: dict[str, dict[int, tuple[str, int]]] = {}
    for url in URL.finditer(text):
        if url["host"] != OWN:
            found.setdefault(url["host"], {})[int(url["port"])] = (url["scheme"], int(url["ranks"] or 1))
    for name in NAME.finditer(text):
        if name["kind"] == "dns":
            found.setdefault(name["host"], {})[int(name["port"])] = ("http", 1)
    return found


def _is_address(name: str) -> bool:
    return re.fullmatch(r"[\d.]+", name) is not None


def _to(port: int) -> Connect:
    async def connect() -> socket.socket:
        made = socket.socket()
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, (OWN, port))
        return made

    return connect


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()


async def _closed(server: asyncio.Server) -> None:
    server.close()
