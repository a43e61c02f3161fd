"""What a router may hold no more when its clients have left: counts, tasks, file descriptors."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from tests.rig.running import Router


@dataclass(frozen=True)
class Held:
    """What this process and its router hold at one moment."""

    tasks: int
    files: int
    in_flight: int
    """Exchanges, streams in ledgers, and requests that have come in part."""

    @classmethod
    def by(cls, router: Router) -> Held:
        house = router.house
        streams = sum(streams for streams, _ in router.in_flight.values())
        counted = streams + len(house.plane.active) + len(house.doorway.door.receiving)
        return cls(len(asyncio.all_tasks()), len(list(Path("/proc/self/fd").iterdir())), counted)

    def over(self, before: Held) -> int:
        """How much more than before."""
        tasks, files = self.tasks - before.tasks, self.files - before.files
        return max(0, tasks) + max(0, files) + max(0, self.in_flight - before.in_flight)


async def leaked(router: Router, before: Held) -> int:
    """Wait until no more is held than before; return how much still is after a test's deadline."""
    try:
        await router.until(lambda: Held.by(router).over(before) == 0)
    except AssertionError:
        return Held.by(router).over(before)
    return 0
