"""Touches in a replay: the core says which, the simulated engines do them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from router.core.fleet import Fleet
from router.core.touching.touching import Touch, Touching
from router.core.types import ReplicaId, Usage
from router.replay.demand import Job
from router.replay.fleet import SimulatedFleet
from router.sim.types import Event, Finished

BUDGET_RATIO = 0.02
"""As the setting of this name."""

KEEP_BYTES = 64 << 20
"""As the setting of this name."""


class Touches:
    """Drives the core's `Touching` as the live router does."""

    def __init__(self, fleet: Fleet, index_bytes: int) -> None:
        self.touching: Touching[Job] = Touching(fleet, KEEP_BYTES, BUDGET_RATIO, index_bytes)
        self.touching.interrupt = self._abort
        self._fleet = fleet
        self._engines: SimulatedFleet | None = None
        self._numbers: dict[ReplicaId, int] = {}
        self._touches: dict[str, Touch[Job]] = {}
        self._count = self._aborted = 0

    def attach(self, engines: SimulatedFleet) -> None:
        """Touch these engines; number n is `rn` in the fleet."""
        self._engines = engines
        self._numbers = {f"r{number}": number for number in range(len(engines.engines))}

    def look(self, now: float) -> None:
        """Begin what is due, and judge what was gained."""
        self.touching.profit.judge(len(self._fleet), now)
        if self._engines is None:
            return
        for replica in self._fleet:
            offer = self.touching.due(replica, now)
            touch = offer and self.touching.begin(offer, now)
            if touch:
                self._send(touch, self._engines, now)

    def _send(self, touch: Touch[Job], engines: SimulatedFleet, now: float) -> None:
        self._count += 1
        name = f"touch {self._count}"
        self._touches[name] = touch
        request = replace(touch.kept.body.simulated, request_id=name, output_token_ids=range(1), finish_reason="length")
        engines.submit(self._numbers[touch.kept.replica], request, now)

    def take(self, event: Event) -> bool:
        """Take an engine's event; False where it is not a touch's."""
        touch = self._touches.get(event.request_id)
        if touch is None:
            return False
        if isinstance(event, Finished):
            del self._touches[event.request_id]
            usage = Usage(event.prompt_tokens, event.cached_tokens, event.generated_tokens, event.reason)
            self.touching.end(touch, event.at_s, served=True, keep=True, usage=usage)
        return True

    def _abort(self, touch: Touch[Job], now: float) -> None:
        name = next(name for name, one in self._touches.items() if one is touch)
        del self._touches[name]
        self._aborted += 1
        if self._engines is not None:
            self._engines.abort(self._numbers[touch.kept.replica], name, now)
        self.touching.end(touch, now, served=False, keep=True)

    @property
    def figures(self) -> Mapping[str, float]:
        """What touches did over the whole run."""
        profit = self.touching.profit
        return {
            "touches": self._count,
            "touches_aborted": self._aborted,
            "touch_hits": profit.hits,
            "touch_misses": profit.misses,
            "touch_saved_s": profit.saved_s,
            "touch_lost_s": profit.lost_s,
            "touch_spent_s": profit.spent_s,
            "touches_off": profit.times_off,
        }


def attached(contender: object, engines: SimulatedFleet) -> Touches | None:
    """Return a contender's touches, in front of these engines; None where it does not touch."""
    touches = getattr(contender, "touches", None)
    if isinstance(touches, Touches):
        touches.attach(engines)
        return touches
    return None
