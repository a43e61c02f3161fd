"""The networks that tests make are real: hosts see each other by name, and end with all that ran there."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import httpx
import pytest

from tests.rig.inside import children
from tests.rig.network import Network, require_network

SERVE = [sys.executable, "-u", "-m", "http.server", "--bind", "0.0.0.0", "8000"]  # fmt: skip
SERVES = "Serving HTTP"
FETCH = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).status)"


def fetch(url: str) -> list[str]:
    return [sys.executable, "-c", FETCH, url]


async def test_hosts_reach_each_other_by_name_alias_and_address() -> None:
    async with Network() as network:
        engine = await network.host("engine-1", "engine", addresses=["10.0.0.1"])
        client = await network.host("client")
        await (await engine.start(SERVE)).says(SERVES)
        for name in ("engine-1", "engine", "10.0.0.1"):
            ran = await client.run(fetch(f"http://{name}:8000/proc/version"))
            assert (ran.code, ran.out) == (0, "200\n"), ran.err
        assert (await client.run(["hostname"])).out == "client\n"


async def test_they_have_addresses_of_ipv6_where_asked_to() -> None:
    async with Network() as network:
        engine = await network.host("engine", addresses=["fd00:5::1"])
        client = await network.host("client", addresses=["10.0.0.2", "fd00:9::2"])
        await (await engine.start([*SERVE[:5], "::", "8000"])).says(SERVES)
        assert (await client.run(fetch("http://engine:8000/proc/version"))).out == "200\n"


async def test_the_same_port_is_another_on_each_host_and_on_this_machine() -> None:
    async with Network() as network:
        for name in ("one", "other"):
            await (await (await network.host(name)).start(SERVE)).says(SERVES)


async def test_a_name_that_hosts_share_has_all_their_addresses_in_the_dns() -> None:
    async with Network() as network:
        for number in (1, 2):
            await network.host(f"engine-{number}", "engine", addresses=[f"10.0.0.{number}"])
        code = (
            "import dns.resolver; print(sorted(r.to_text() for r in dns.resolver.resolve('engine', 'A', search=True)))"
        )
        client = await network.host("client")
        both = await client.run([sys.executable, "-c", code])
        assert both.out == "['10.0.0.1', '10.0.0.2']\n", both.err
        await network.remove(network.hosts["engine-1"])
        other = await client.run([sys.executable, "-c", code])
        assert other.out == "['10.0.0.2']\n", other.err


async def test_a_published_port_is_one_of_the_machine() -> None:
    async with Network() as network:
        engine = await network.host("engine")
        await (await engine.start(SERVE)).says(SERVES)
        await network.publish(8080, engine, 8000)
        assert (await network.machine.run(fetch("http://127.0.0.1:8080/proc/version"))).out == "200\n"
        other = await network.host("other")
        assert (await other.run(fetch(f"http://{network.dns_address}:8080/"))).code != 0, "published to everybody"


async def test_the_test_itself_reaches_a_port_of_a_host() -> None:
    async with Network() as network:
        engine = await network.host("engine")
        local = [*SERVE[:5], "127.0.0.1", "8001"]
        for command in (SERVE, local):
            await (await engine.start(command)).says(SERVES)
        for place in (await network.outside(engine, 8000), await network.outside(engine, 8001, "127.0.0.1")):
            async with httpx.AsyncClient(trust_env=False) as client:
                assert (await client.get(f"http://{place}/proc/version")).status_code == 200
        nobody = await network.outside(engine, 8001)
        async with httpx.AsyncClient(trust_env=False) as client:
            with pytest.raises(httpx.TransportError):
                await client.get(f"http://{nobody}/")


async def test_a_host_says_how_its_commands_ended() -> None:
    async with Network() as network:
        host = await network.host("host")
        ran = await host.run(["sh", "-c", "cat; echo $WORD >&2; pwd; exit 3"], {"WORD": "wrong"}, "/usr", "in\n")
        assert (ran.code, ran.out, ran.err) == (3, "in\n/usr\n", "wrong\n")


async def test_a_signal_reaches_the_command_itself() -> None:
    async with Network() as network:
        host = await network.host("host")
        script = "trap 'echo told; exit 4' INT; echo begun; while :; do sleep 0.01; done"
        waiting = await host.start(["sh", "-c", script])
        await waiting.says("begun")
        waiting.signal(signal.SIGINT)
        assert await waiting.wait() == 4
        assert "told" in waiting.written
        sleeping = await host.start(["sleep", "1000"])
        sleeping.signal()
        assert await sleeping.wait() == -signal.SIGTERM


async def test_all_processes_end_with_their_host_also_when_a_test_fails() -> None:
    pids: list[int] = []
    with pytest.raises(RuntimeError, match="of this test"):
        async with Network() as network:
            host = await network.host("host")
            started = await host.start(["sh", "-c", "trap '' TERM; sleep 1000 & echo $! begun; wait"])
            await started.says("begun")
            pids = [started.pid, host.pid, *children(started.pid)]
            assert len(pids) == 3
            raise RuntimeError("of this test")
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_they_end_when_the_test_program_is_killed(tmp_path: Path) -> None:
    require_network()
    code = (
        "import asyncio\n"
        "from tests.rig.network import Network\n"
        "async def main():\n"
        "    async with Network() as network:\n"
        "        host = await network.host('host')\n"
        "        started = await host.start(['sleep', '1000'])\n"
        "        print(started.pid, flush=True)\n"
        "        await started.wait()\n"
        "asyncio.run(main())\n"
    )
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2],
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert program.stdout is not None
    sleeping = int(await program.stdout.readline())
    watched = os.pidfd_open(sleeping)
    gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(watched, gone.set)
    program.kill()
    async with asyncio.timeout(20):
        await gone.wait()
    asyncio.get_running_loop().remove_reader(watched)
    os.close(watched)
    await program.wait()


async def test_hosts_do_not_have_each_others_processes() -> None:
    async with Network() as network:
        one, other = await network.host("one"), await network.host("other")
        await one.start(["sleep", "1000"])
        listed = "for file in /proc/[0-9]*/comm; do cat $file; done"
        assert "sleep" in (await one.run(["sh", "-c", listed])).out
        assert "sleep" not in (await other.run(["sh", "-c", listed])).out



async def test_the_machine_stays_the_same_neighbour_whoever_comes_and_goes() -> None:
    """A bridge takes its ports' lowest address otherwise, and what others remember of it is wrong for seconds."""
    show = ["ip", "-brief", "link", "show", "br0"]
    async with Network() as network:
        seen = {(await network.machine.run(show)).out.split()[2]}
        for number in range(4):
            host = await network.host(f"host-{number}")
            seen.add((await network.machine.run(show)).out.split()[2])
        await network.remove(host)
        seen.add((await network.machine.run(show)).out.split()[2])
        assert len(seen) == 1
