"""The machine's clock jumps by hours, forwards or back: NTP that begins late, a virtual machine that was suspended.

Users see nothing of it. Routing, time-outs, back-offs and speeds go by the monotonic clock, which does not jump. What
goes by the calendar, since it is shown or compared between machines, has to bear it: operators' orders, the history,
the state file.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from tests.redis_server import RedisServer
from tests.rig.client import DEADLINE_S, Answer, Client, chat
from tests.rig.programs import absent
from tests.rig.running import LOOK_S
from tests.rig.served import Served, serving
from tests.rig.stage import Stage

HOURS = 3
STORY = "a long story, " * 200


class Clock:
    """A process's clock, as libfaketime shows it: it reads a file whenever it is asked for the time."""

    def __init__(self, folder: Path, name: str = "clock") -> None:
        self._file = folder / name
        self.set(0)

    def set(self, hours: int) -> None:
        """Let the calendar be this far from the machine's. The monotonic clock stays."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{hours:+d}h\n")
        new.replace(self._file)

    @property
    def variables(self) -> Mapping[str, str]:
        found = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
        if not found:
            absent("libfaketime is not installed (on Debian: libfaketime)", "REQUIRE_FAKETIME")
        return {
            "LD_PRELOAD": str(found[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


async def ask(served: Served, data: bytes) -> Answer:
    client = await Client.open(served.port)
    answer = await client.ask(data)
    client.leave()
    return answer


async def shows(served: Served, *paths: str) -> list[Any]:
    """What the admin API says; all of it must be answered."""
    answers = [await served.admin("GET", path) for path in paths]
    assert [answer.status_code for answer in answers] == [200] * len(paths), answers
    return [answer.json() for answer in answers]


async def test_requests_go_on_and_warm_ones_stay_warm(stage: Stage, tmp_path: Path) -> None:
    replicas = await stage.replicas(2, time_scale=20.0)
    clock = Clock(tmp_path)
    arguments = [argument for replica in replicas for argument in ("--replica", replica.url)]
    state = ["--state-file", str(tmp_path / "state")]
    async with serving(*arguments, *state, variables=clock.variables) as served:
        first = await ask(served, chat(STORY))
        assert first.status == 200
        client = await Client.open(served.port)
        client.send(chat("a stream", stream=True, max_tokens=400, ignore_eos=True))
        stream = await client.head()
        await client.chunk(stream)
        for hours in (HOURS, -HOURS):
            clock.set(hours)
            again = await ask(served, chat(STORY))
            assert (again.reason, again.replica) == ("warm", first.replica)
        await client.rest(stream)
        assert stream.events()[-1] == "[DONE]", "the stream was cut"
        client.leave()
        fleet, _, overview, misses = await shows(served, "/api/fleet", "/api/history", "/api/overview", "/api/misses")
        assert {replica["state"] for replica in fleet["replicas"]} == {"ready"}
        assert overview["windows"]["5m"]["requests"] == 4
        assert misses == []
        clock.set(0)
        await drained_and_back(served, first, clock)
        served.send(signal.SIGTERM)
        code, _ = await served.ended()
        assert code == 0
    async with serving(*arguments, *state, variables=clock.variables) as served:
        third = await ask(served, chat(STORY))
        assert (third.reason, third.replica) == ("warm", first.replica), "the state file was not believed"
        await shows(served, "/api/history", "/api/overview", "/api/sessions")


async def drained_and_back(served: Served, first: Answer, clock: Clock) -> None:
    """An order that was given before the clock went back must be ended by one that is given after it."""
    assert (await served.admin("POST", f"/api/replicas/{first.replica}/drain")).status_code == 200
    assert (await ask(served, chat(STORY))).replica != first.replica
    clock.set(-HOURS)
    assert (await served.admin("POST", f"/api/replicas/{first.replica}/undrain")).status_code == 200
    (fleet,) = await shows(served, "/api/fleet")
    assert all(replica["state"] != "draining" for replica in fleet["replicas"])


@contextlib.asynccontextmanager
async def two_routers(stage: Stage, folder: Path, ahead_hours: int) -> AsyncIterator[tuple[Served, Served]]:
    """Routers on one Redis; the second one's clock is wrong."""
    replicas = await stage.replicas(2)
    arguments = [argument for replica in replicas for argument in ("--replica", replica.url)]
    right, wrong = Clock(folder, "right"), Clock(folder, "wrong")
    wrong.set(ahead_hours)
    with RedisServer() as redis:
        shared = [*arguments, "--redis", redis.url]
        async with (
            serving(*shared, variables=right.variables) as one,
            serving(*shared, variables=wrong.variables) as other,
        ):
            yield one, other


async def until(router: Served, holds: Callable[[dict[str, Any]], bool]) -> None:
    """Look at the fleet until something is true of it."""
    async with asyncio.timeout(DEADLINE_S):
        fleet = await router.fleet()
        while not holds(fleet):
            await asyncio.sleep(LOOK_S)
            fleet = await router.fleet()


def is_in(state: str, replica: str) -> Callable[[dict[str, Any]], bool]:
    return lambda fleet: any((each["id"], each["state"]) == (replica, state) for each in fleet["replicas"])


async def test_routers_whose_clocks_differ_by_hours_agree(stage: Stage, tmp_path: Path) -> None:
    async with two_routers(stage, tmp_path, HOURS) as (one, other):
        for served in (one, other):
            await until(served, lambda fleet: len(fleet["routers"]) == 2)
        first = await ask(one, chat(STORY))
        second = await ask(other, chat(STORY))
        assert (second.reason, second.replica) == ("warm", first.replica)
        assert first.replica is not None
        for orderer, follower in ((one, other), (other, one)):
            for order, state in (("drain", "draining"), ("undrain", "ready")):
                ordered = await orderer.admin("POST", f"/api/replicas/{first.replica}/{order}")
                assert ordered.status_code == 200
                await until(follower, lambda fleet, state=state: is_in(state, first.replica or "")(fleet))  # type: ignore[misc]
