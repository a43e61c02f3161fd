"""Runs a pure engine in real time: one timer of the event loop, set to the engine's next event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from router.sim.blocks import CacheListener
from router.sim.engine import Engine
from router.sim.types import EngineConfig, Event, Finished, SimRequest

Sink = Callable[[Event], None]

_TICK_S = 0.001
"""Events closer together than this are told together. uvloop's timers are no finer, and each round costs a wake-up."""


class Publisher(CacheListener, Protocol):
    """Publishes what becomes of an engine's cache."""

    def flush(self) -> None:
        """Publish what has happened since the last time."""

    def restart(self) -> None:
        """Another engine takes this one's place."""


class EngineDriver:
    """An engine, its clock, and who wants to hear of which request. Engine seconds pass `time_scale` times faster."""

    def __init__(
        self, config: EngineConfig, loop: asyncio.AbstractEventLoop, time_scale: float, advanced: Callable[[], None]
    ) -> None:
        self.engine = Engine(config)
        self._loop = loop
        self._time_scale = time_scale
        self._advanced = advanced
        self._config = config
        self._publisher: Publisher | None = None
        self._sinks: dict[str, Sink] = {}
        self._origin_s = loop.time()
        """Loop time at which the engine's clock stood at 0."""
        self._frozen_s: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0
        self._last_round_s = 0.0

    def publish(self, publisher: Publisher) -> None:
        """Let somebody publish what becomes of the engine's cache."""
        self._publisher = self.engine.pool.listener = publisher

    def now_s(self) -> float:
        """Return the engine's time."""
        if self._frozen_s is not None:
            return self._frozen_s
        return (self._loop.time() - self._origin_s) * self._time_scale

    @property
    def frozen(self) -> bool:
        """The engine's clock stands still."""
        return self._frozen_s is not None

    def submit(self, request: SimRequest, sink: Sink) -> bool:
        """Hand a request to the engine; False: its queue is full.

        Raises:
            DoesNotFit: it could never run.
        """
        if not self.engine.submit(request, self.now_s()):
            return False
        self._sinks[request.request_id] = sink
        self._flush()
        self._arm()
        return True

    def abort(self, request_id: str) -> None:
        """Take a request off the engine; its sink hears no more."""
        if self._sinks.pop(request_id, None) is not None:
            self.engine.abort(request_id, self.now_s())
            self._flush()
            self._arm()
            self._advanced()

    def freeze(self) -> None:
        """Stop the engine's clock: nothing happens until `thaw`. Requests may still be submitted."""
        if self._frozen_s is None:
            self._frozen_s = self.now_s()
            self._disarm()

    def thaw(self) -> None:
        """Let the clock go on from where it stopped."""
        if self._frozen_s is not None:
            self._origin_s = self._loop.time() - self._frozen_s / self._time_scale
            self._frozen_s = None
            self._arm()

    def restart(self) -> None:
        """Put a new, cold engine in place of this one; no sink hears any more."""
        self._disarm()
        self._sinks.clear()
        self.engine = Engine(self._config)
        if self._publisher is not None:
            self._publisher.restart()
            self.engine.pool.listener = self._publisher
        self._origin_s = self._loop.time()
        self._frozen_s = None

    def stop(self) -> None:
        """Set no more timers."""
        self._disarm()
        self._sinks.clear()
        self._frozen_s = self.now_s()

    def _arm(self) -> None:
        if self._frozen_s is not None:
            return
        due_s = self.engine.next_event_s()
        if due_s is None:
            self._disarm()
            return
        at_s = max(self._origin_s + due_s / self._time_scale, self._last_round_s + _TICK_S)
        if self._timer is not None:
            if self._timer_s <= at_s:
                return  # It fires early enough, and then looks again.
            self._timer.cancel()
        self._timer_s = at_s
        self._timer = self._loop.call_at(at_s, self._round)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _round(self) -> None:
        self._timer = None
        self._last_round_s = self._loop.time()
        events = self.engine.advance(self.now_s())
        self._flush()  # vLLM hands a step's cache events to their thread before its tokens go out
        for event in events:
            self._deliver(event)
        self._arm()
        self._advanced()

    def _flush(self) -> None:
        if self._publisher is not None:
            self._publisher.flush()

    def _deliver(self, event: Event) -> None:
        sink = self._sinks.get(event.request_id)
        if sink is None:
            return
        if isinstance(event, Finished):
            del self._sinks[event.request_id]
        sink(event)
