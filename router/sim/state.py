"""What a replica is between restarts of its sockets: engine, counters, stored responses, requests under way."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from router.sim.driver import EngineDriver
from router.sim.exposition import EngineReading, Reading, exposition
from router.sim.generation import Generation
from router.sim.meters import HttpMeters
from router.sim.options import SimOptions
from router.sim.plan import Planner
from router.sim.ranks import Rank, Ranks
from router.sim.tokenizer import Tokenizer

if TYPE_CHECKING:
    from router.sim.kv_events import KvPublisher


@dataclass(slots=True)
class StoredResponse:
    """A response kept for GET, cancel and previous_response_id."""

    record: dict[str, Any]
    messages: list[Any]
    """The chat messages that led to it."""
    generation: Generation | None = None
    """While it is generated in the background."""


@dataclass(slots=True)
class _Process:
    """What does not outlive a restart."""

    start_time_s: float = field(default_factory=time.time)
    cpu_base_s: float = field(default_factory=time.process_time)
    http: HttpMeters = field(default_factory=HttpMeters)
    responses: dict[str, StoredResponse] = field(default_factory=dict)
    generations: set[Generation] = field(default_factory=set)


class ReplicaState:
    """One simulated vLLM without its sockets. Adapters may be added to `adapters` at any time."""

    def __init__(
        self,
        options: SimOptions,
        loop: asyncio.AbstractEventLoop,
        changed: Callable[[], None],
        host: str = "127.0.0.1",
    ) -> None:
        """`host`: where cache events are published, if they are."""
        self.options = options
        self.loop = loop
        self.tokenizer = _shared_tokenizer()
        self.planner = Planner(self.tokenizer)
        self.adapters: list[str] = []
        """Names of LoRA adapters of the first model."""
        self.max_model_len = min(options.max_model_len, options.engine.capacity_tokens)
        drivers = [
            EngineDriver(options.engine, loop, options.time_scale, changed) for _ in range(options.data_parallel)
        ]
        self.ranks = Ranks([Rank(driver, self.max_model_len) for driver in drivers])
        self.publishers = _publishers(options, drivers, host)
        self.sleep_level = 0
        """0: awake; 1: weights offloaded; 2: all discarded."""
        self.paused = False
        self._process = _Process()
        self._ids = 0

    @property
    def driver(self) -> EngineDriver:
        """The engine of rank 0: the only one, unless it is data-parallel."""
        return self.ranks.all[0].driver

    @property
    def sse_keep_alive_s(self) -> float:
        """See SimOptions."""
        return self.options.sse_keep_alive_s

    @property
    def http(self) -> HttpMeters:
        """Counters of HTTP traffic."""
        return self._process.http

    @property
    def responses(self) -> dict[str, StoredResponse]:
        """Stored responses by id."""
        return self._process.responses

    @property
    def load(self) -> int:
        """What /load says."""
        return len(self._process.generations) if self.options.server_load_tracking else 0

    def begun(self, generation: Generation) -> None:
        """Note a request that is under way."""
        self._process.generations.add(generation)

    def over(self, generation: Generation) -> None:
        """Forget a request."""
        self._process.generations.discard(generation)

    def fail_all(self) -> None:
        """The engine died: every request under way hears of it."""
        for generation in tuple(self._process.generations):
            generation.fail()

    def restart(self) -> None:
        """Begin again with an empty cache, counters at 0 and a new start time."""
        started_s = self._process.start_time_s
        for generation in tuple(self._process.generations):
            generation.lost()
        for rank in self.ranks.all:
            rank.restart()
        self._process = _Process()
        # Two restarts within the clock's resolution are still two.
        self._process.start_time_s = max(self._process.start_time_s, started_s + 0.01)
        self.sleep_level, self.paused = 0, False

    def sleep(self, level: int = 1) -> None:
        """Stop all engines; what is sent to them waits, and caches are lost."""
        self.sleep_level = level
        self.pause()

    def pause(self) -> None:
        """Stop all engines; what is sent to them waits. Requests that run are kept, which vLLM aborts."""
        self.paused = True
        self.freeze()
        self.reset_prefix_caches()

    def go_on(self) -> None:
        """End sleep and pause."""
        self.sleep_level, self.paused = 0, False
        for rank in self.ranks.all:
            rank.driver.thaw()

    def freeze(self) -> None:
        """Stop all engines' clocks."""
        for rank in self.ranks.all:
            rank.driver.freeze()

    def stop(self) -> None:
        """Set no more timers."""
        for rank in self.ranks.all:
            rank.driver.stop()

    def reset_prefix_caches(self) -> bool:
        """Empty all engines' caches; whether all of them could."""
        emptied = [rank.driver.engine.reset_prefix_cache() for rank in self.ranks.all]
        return all(emptied)

    def next_id(self) -> str:
        """Return an id for the engine, never used before."""
        self._ids += 1
        return str(self._ids)

    def metrics(self) -> bytes:
        """Return the text of /metrics."""
        states = ("awake", "weights_offloaded", "discard_all")
        reading = Reading(
            model=self.options.models[0],
            engines=[EngineReading(rank.driver.engine, rank.meters) for rank in self.ranks.all],
            http=self.http,
            start_time_s=self._process.start_time_s,
            cpu_s=time.process_time() - self._process.cpu_base_s,
            max_model_len=self.max_model_len,
            sleep_state=states[self.sleep_level],
            old_names=self.options.old_metric_names,
        )
        return exposition(reading)


def _publishers(options: SimOptions, drivers: list[EngineDriver], host: str) -> list[KvPublisher]:
    if options.kv_events is None:
        return []
    from router.sim.kv_events import KvPublisher  # its package is an optional extra

    publishers = [
        KvPublisher(options.kv_events, options.engine.block_tokens, rank, host) for rank in range(len(drivers))
    ]
    for driver, publisher in zip(drivers, publishers, strict=True):
        driver.publish(publisher)
    return publishers


@cache
def _shared_tokenizer() -> Tokenizer:
    """One for all replicas of this process: it is a pure function with a cache, and a chat may visit all of them."""
    return Tokenizer()


def random_id() -> str:
    """Return 16 hexadecimal digits, as vLLM's random_uuid."""
    return os.urandom(8).hex()
