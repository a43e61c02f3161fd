"""The simulated replicas of a run, and which of them has something to tell next."""

from __future__ import annotations

import heapq
from dataclasses import replace

from router.core.types import EngineReport
from router.replay.plan import Plan
from router.sim.blocks import BlockPool
from router.sim.engine import Engine
from router.sim.kept import Kept
from router.sim.tier import Offload, Tier
from router.sim.types import EngineConfig, Event, SimRequest

NEVER = float("inf")


class SimulatedFleet:
    """Engines by number. To be driven through this class only: it keeps their next events in order."""

    def __init__(self, plan: Plan, config: EngineConfig, shared_cache: bool = False) -> None:
        """`shared_cache`: one for all, as large as all together.

        Raises ValueError where `plan.replicas` or one of its speeds is not positive.
        """
        if plan.replicas < 1:
            raise ValueError(f"a fleet has at least one replica, not {plan.replicas}")
        speeds = plan.speeds or (1.0,)
        if min(speeds) <= 0:
            raise ValueError(f"speeds are above 0, not {min(speeds):g}")
        pool = BlockPool(plan.replicas * config.num_blocks) if shared_cache else None
        store = tier_of(plan.offload, config) if plan.offload and plan.offload.shared else None
        self.engines: list[Engine] = []
        for number in range(plan.replicas):
            own_pool = pool or BlockPool(config.num_blocks)
            kept = Kept(own_pool, tier_of(plan.offload, config) if store is None else store, plan.pins)
            self.engines.append(Engine(at_speed(config, speeds[number % len(speeds)]), own_pool, kept))
        self._next_s = [NEVER] * plan.replicas
        self._order: list[tuple[float, int]] = []

    def next_event(self) -> tuple[float, int]:
        """Return when the next event comes, and of which replica; infinity where nothing is under way."""
        order, next_s = self._order, self._next_s
        while order:
            when_s, replica = order[0]
            if next_s[replica] == when_s:
                return when_s, replica
            heapq.heappop(order)
        return NEVER, 0

    def advance(self, replica: int, now: float) -> list[Event]:
        """Return what happened on a replica up to and including `now`."""
        events = self.engines[replica].advance(now)
        self._look_at(replica)
        return events

    def submit(self, replica: int, request: SimRequest, now: float) -> None:
        """Send a request to a replica."""
        self.engines[replica].submit(request, now)
        self._look_at(replica)

    def abort(self, replica: int, request_id: str, now: float) -> None:
        """Give a request up that is under way on a replica."""
        self.engines[replica].abort(request_id, now)
        self._look_at(replica)

    def _look_at(self, replica: int) -> None:
        when_s = self.engines[replica].next_event_s()
        when_s = NEVER if when_s is None else when_s
        if when_s != self._next_s[replica]:
            self._next_s[replica] = when_s
            if when_s != NEVER:
                heapq.heappush(self._order, (when_s, replica))


def at_speed(config: EngineConfig, speed: float) -> EngineConfig:
    """Return an engine that does everything `speed` times as fast."""
    return replace(
        config,
        prefill_tokens_per_s=config.prefill_tokens_per_s * speed,
        decode_s=config.decode_s / speed,
        decode_per_seq_s=config.decode_per_seq_s / speed,
    )


def tier_of(offload: Offload | None, config: EngineConfig) -> Tier | None:
    """Return an empty tier as it is ordered, in the engines' blocks; None without one."""
    if offload is None:
        return None
    return Tier(offload.tokens // config.block_tokens, offload.load_tokens_per_s, offload.shared)


def fits(request: SimRequest, config: EngineConfig) -> bool:
    """Tell whether an engine takes a request at all."""
    prompt_tokens, output_tokens = len(request.token_ids), len(request.output_token_ids)
    return prompt_tokens > 0 and prompt_tokens + max(0, output_tokens - 1) <= config.capacity_tokens


def report_of(engine: Engine) -> EngineReport:
    """Return what a reading of an engine's metrics says.

    Its KV tokens are those that it finds again, in host memory, too: a router that follows KV cache events knows them.
    """
    return EngineReport(
        running=engine.running,
        waiting=engine.waiting,
        kv_usage_ratio=engine.kv_usage_ratio,
        kv_tokens=max(engine.config.kv_tokens, engine.kept.own_blocks * engine.config.block_tokens),
        block_tokens=engine.config.block_tokens,
        prefix_queries_tokens=engine.stats.prefix_queries_tokens,
        prefix_hits_tokens=engine.stats.prefix_hits_tokens,
        external_hits_tokens=engine.stats.external_hits_tokens,
        start_time_s=1.0,
    )
