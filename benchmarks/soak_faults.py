"""What soak.py does to a fleet: one thing after the other from a shuffled deck, so that each kind has its turn."""

import asyncio
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random

from benchmarks.soak_load import leave_midway, read_slowly, send_garbage
from benchmarks.soak_stage import Program, Stage, flush

LEAVERS, SLOW_READERS, GARBAGE = 20, 10, 30
SLOW_S = 2.0
"""How much longer than other faults slow readers last, as a factor."""

Kill = tuple[str, float]
"""Replica id, and the loop's time."""


class Faults:
    """Faults of a stage, the same ones for the same seed. Each is healed before the next one of the deck begins."""

    def __init__(self, stage: Stage, seed: int, hold_s: float, gap_s: float, say: Callable[[str, str], None]) -> None:
        self.stage, self.chance, self.hold_s, self.gap_s, self.say = stage, Random(seed), hold_s, gap_s, say
        self.loop = asyncio.get_running_loop()
        self.done: Counter[str] = Counter()
        self.kills: list[Kill] = []
        self.own_5xx = 0
        self.background: set[asyncio.Task[None]] = set()

    @property
    def kinds(self) -> dict[str, Callable[[], Awaitable[None]]]:
        with_redis = {
            "redis killed": self.redis_killed,
            "redis frozen": self.redis_frozen,
            "redis flushed": self.redis_flushed,
        }
        return {
            "replica killed": self.replica_killed,
            "replica frozen": self.replica_frozen,
            "replica drained": self.replica_drained,
            "replica removed": self.replica_removed,
            **(with_redis if self.stage.redis else {}),
            "clients left": self.clients_left,
            "slow readers": self.slow_readers,
            "hostile bytes": self.hostile_bytes,
            "reload": self.reload,
        }

    async def run(self, until_s: float) -> None:
        """Deal the whole deck once, and again while the loop's time is before `until_s`."""
        first = True
        while first or self.loop.time() < until_s:
            deck = list(self.kinds.items())
            self.chance.shuffle(deck)
            for kind, fault in deck:
                if not first and self.loop.time() >= until_s:
                    break
                await asyncio.sleep(self.chance.uniform(0.5, 1.5) * self.gap_s)
                self.done[kind] += 1
                self.say("fault", kind)
                await fault()
            first = False
        await asyncio.gather(*self.background)

    async def hold(self) -> None:
        await asyncio.sleep(self.chance.uniform(0.5, 1.5) * self.hold_s)

    def any_engine(self) -> Program:
        return self.chance.choice(self.stage.engines)

    async def replica_killed(self) -> None:
        victim = self.any_engine()
        self.kills.append(((await self.stage.replica_ids())[victim.url], self.loop.time()))
        await victim.kill()
        await self.hold()
        await victim.start()

    async def replica_frozen(self) -> None:
        await self._freeze(self.any_engine())

    async def _freeze(self, program: Program) -> None:
        program.send(signal.SIGSTOP)
        await self.hold()
        program.send(signal.SIGCONT)

    async def replica_drained(self) -> None:
        path = f"/api/replicas/{(await self.stage.replica_ids())[self.any_engine().url]}"
        await self.stage.tell_all("POST", f"{path}/drain")
        await self.hold()
        await self.stage.tell_all("POST", f"{path}/undrain")

    async def replica_removed(self) -> None:
        name = self.chance.choice(list(self.stage.named))
        await self.stage.tell_all("DELETE", f"/api/replicas/{name}")
        await self.hold()
        await self.stage.put_in(name)

    async def redis_killed(self) -> None:
        assert self.stage.redis is not None
        await self.stage.redis.kill()
        await self.hold()
        await self.stage.redis.start()

    async def redis_frozen(self) -> None:
        assert self.stage.redis is not None
        await self._freeze(self.stage.redis)

    async def redis_flushed(self) -> None:
        assert self.stage.redis is not None
        await asyncio.to_thread(flush, self.stage.redis.port)

    async def clients_left(self) -> None:
        await asyncio.gather(*(leave_midway(self.stage.port, self.chance) for _ in range(LEAVERS)))

    async def slow_readers(self) -> None:
        for _ in range(SLOW_READERS):
            task = asyncio.create_task(read_slowly(self.stage.port, self.hold_s * SLOW_S))
            self.background.add(task)
            task.add_done_callback(self.background.discard)

    async def hostile_bytes(self) -> None:
        answers = await asyncio.gather(*(send_garbage(self.stage.port, self.chance) for _ in range(GARBAGE)))
        self.own_5xx += sum(b" 50" in answer[:20] and b"x-warmroute-replica" not in answer for answer in answers)

    async def reload(self) -> None:
        await self.stage.reload()
