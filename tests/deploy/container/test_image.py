"""The image itself, built from the Dockerfile and run as a container engine runs it. Opt-in: make test-image."""

from __future__ import annotations

import os
import re
import signal
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from router import __version__
from tests.deploy.container.box import DEADLINE_S, Box, free_ports
from tests.deploy.container.building import Builder, Image, demand

pytestmark = pytest.mark.timeout(1200)  # the first test builds the image

KEEP_OUT = re.compile(
    r"/(s?bin/(.*-)?(gcc|g\+\+|cc|c99|ld|as|make|pip[\d.]*|uv|curl|wget|git)|(pip|ensurepip|hatchling))$"
)
"""What compiles, and what brings programs in."""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder that other users reach: pytest keeps its own to itself, anew whenever it is started."""
    with tempfile.TemporaryDirectory(prefix="warmroute-image-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="module")
def image(place: Path) -> Image:
    demand()
    builder = Builder(place)
    builder.base()
    return builder.build()


@pytest.fixture
def state(place: Path, request: pytest.FixtureRequest) -> Path:
    return place / f"state of {request.node.name}"


@pytest.fixture
def ports() -> list[int]:
    return free_ports(3)


def kept_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def files(image: Image) -> Iterator[tuple[Path, os.stat_result]]:
    for folder, names, found in os.walk(image.tree):
        for name in (*names, *found):
            path = Path(folder) / name
            yield Path("/") / path.relative_to(image.tree), path.lstat()


def test_nothing_compiles_and_nothing_brings_programs_in(image: Image) -> None:
    assert [path for path, _ in files(image) if KEEP_OUT.search(str(path))] == []


def test_nobody_gains_rights_by_a_file(image: Image) -> None:
    ours = Path("/opt/warmroute")
    for path, status in files(image):
        if stat.S_ISREG(status.st_mode):
            assert not status.st_mode & (stat.S_ISUID | stat.S_ISGID), path
        if ours in path.parents and not stat.S_ISLNK(status.st_mode):
            assert (status.st_uid, status.st_mode & 0o022) == (0, 0), path


def test_all_that_is_imported_has_its_bytecode(image: Image) -> None:
    """A read-only root can't be given any, and then each start compiles everything."""
    for root in ("opt/warmroute/lib", "usr/lib/python3.13/asyncio", "usr/lib/python3.13/urllib"):
        for source in (image.tree / root).rglob("*.py"):
            compiled = source.parent / "__pycache__" / f"{source.stem}.cpython-313.pyc"
            assert compiled.exists(), source
            assert compiled.read_bytes()[4:8] == b"\x01\0\0\0", "by hash, and never looked at again"


def test_the_checkout_is_not_in_it(image: Image) -> None:
    assert not (image.tree / "build").exists()
    assert kept_in(image.tree / "opt") == {"warmroute"}
    packages = image.tree / "opt/warmroute/lib/python3.13/site-packages"
    assert (packages / "router" / "app" / "dashboard" / "page").is_dir()
    assert not list(packages.glob("tests")) and not list(packages.glob("router/__editable__*"))


async def test_it_is_what_it_says(image: Image, state: Path) -> None:
    box = Box(image, state)
    assert await box.run("warmroute", "--version") == (0, f"warmroute {__version__}\n")
    assert image.config["Labels"]["org.opencontainers.image.version"] == __version__
    assert (await box.run("id", "-un"))[1] == "warmroute\n"
    code, said = await box.run("touch", "/opt/warmroute/bin/x")
    assert code != 0
    assert "Read-only file system" in said


async def test_a_router_before_a_replica(image: Image, state: Path, ports: list[int]) -> None:
    """Both from this image; health, a chat, the state file, and the end that was asked for."""
    port, admin_port, engine_port = ports
    engine = f"http://127.0.0.1:{engine_port}"
    box = Box(
        image, state, WARMROUTE_REPLICA=engine, WARMROUTE_PORT=str(port), WARMROUTE_ADMIN_PORT=str(admin_port),
        WARMROUTE_STATE_FILE="/var/lib/warmroute/state", WARMROUTE_HEALTH_INTERVAL_S="0.1",
    )  # fmt: skip
    health = image.config["Healthcheck"]["Test"][1:]
    code, said = await box.run(*health)
    assert (code, said) == (1, f"warmroute: http://127.0.0.1:{port}/readyz: Connection refused\n")
    async with box.running("sim", "--port", str(engine_port)) as replica, box.running() as router:
        await replica.line(engine)
        assert f"http://0.0.0.0:{port}/v1" in await router.line("clients")
        assert f"http://127.0.0.1:{admin_port}/" in await router.line("admin")
        deadline_s = time.monotonic() + DEADLINE_S
        while (told := await box.run(*health)) != (0, ""):  # the replica may have come after the router
            assert time.monotonic() < deadline_s, told
        assert await box.run("warmroute", "health", engine) == (0, "")
        async with httpx.AsyncClient(trust_env=False, base_url=f"http://127.0.0.1:{port}") as client:
            assert (await client.get("/livez")).status_code == 200
            body = {"model": "sim-model", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
            answer = await client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200
        assert answer.headers["x-warmroute-replica"]
        router.send(signal.SIGTERM)
        code, said = await router.ended()
        assert code == 0, said
        assert "every request was answered" in said
        replica.send(signal.SIGTERM)
        code, said = await replica.ended()
        assert code == 0, said
    assert kept_in(state) == {"state"}
    assert (state / "state").stat().st_size > 100


async def test_a_stop_during_the_start_is_heeded(image: Image, state: Path, ports: list[int]) -> None:
    """The first process of a container has no default for SIGTERM; without a handler it would be waited for in vain."""
    box = Box(image, state, PYTHONVERBOSE="1", WARMROUTE_PORT=str(ports[0]), WARMROUTE_ADMIN_PORT="0")
    async with box.running() as router:
        await router.line("import 'router.app.entry'")
        await router.line("import 'typer")
        router.send(signal.SIGTERM)
        code, said = await router.ended()
    assert code == 128 + signal.SIGTERM, said[-500:]
    assert "warmroute: clients" not in said
