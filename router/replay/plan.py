"""What a replay is asked for, and what it found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from router.sim.pins import PinRules
from router.sim.tier import Offload
from router.sim.types import EngineConfig


@dataclass(frozen=True, slots=True)
class Plan:
    """One run: a fleet, a policy, a seed. The workload is given beside it."""

    policy: str
    """Name of a contender: one of Warmroute's policies, a rival's or an oracle's."""
    engine: EngineConfig
    replicas: int = 8
    speeds: tuple[float, ...] = ()
    """Speed of each replica against `engine`'s, in turn over the fleet; empty: all 1."""
    minutes: float = 60.0
    """Of traffic, warm-up included."""
    warm_up_minutes: float = 0.0
    """At the start, not counted."""
    seed: int = 1
    queue_depth_s: float = 1.0
    """As the setting of this name; 0 holds nothing."""
    max_queue_wait_s: float = 60.0
    """As the setting of this name."""
    tenants: int = 1
    """Clients belong to so many, in turn."""
    retries: int = 2
    """How often a refused request comes again, after its Retry-After; OpenAI's clients do it twice."""
    touch: bool = False
    """Whether Warmroute touches idle sessions, as the setting of this name has it."""
    routers: int = 1
    sync_ms: float = 0.0
    """How old what routers know of each other is."""
    offload: Offload | None = None
    """Copies of blocks beside the GPUs."""
    pins: PinRules | None = None
    """Sessions whose blocks stay held between turns."""
    history_tokens: int | None = None
    """Longer prompts are cut in their middle; None: as they come."""


@dataclass(frozen=True, slots=True)
class Answered:
    """One counted request. Times in seconds of the simulation."""

    arrived_s: float
    first_s: float
    """First token."""
    ended_s: float
    prompt_tokens: int
    cached_tokens: int
    """As the engine reported them."""
    predicted_tokens: int
    """As the router expected them; 0 where a contender predicts nothing."""
    output_tokens: int
    replica: int
    reason: str
    queued_s: float = 0.0
    """Waited in the router."""
    queued_predicted_s: float = 0.0
    """What the router had predicted of that."""
    first_asked_s: float = 0.0
    """Earlier than `arrived_s` where it was refused before and came again."""
    batch: bool = False
    """Nobody waited for the answer."""

    @property
    def ttft_s(self) -> float:
        return self.first_s - self.arrived_s


@dataclass(slots=True)
class Result:
    """What one run showed. Only requests that arrived after the warm-up count."""

    plan: Plan
    answered: list[Answered] = field(default_factory=list)
    refused: int = 0
    ceiling_ratio: float = 0.0
    """Token hit rate of a cache that never evicts, over the counted requests."""
    pooled_ratio: float = 0.0
    """Token hit rate of one LRU cache as large as all replicas' together, over the counted requests."""
    run_s: float = 0.0
    """How long the run took, in real seconds."""
    router_s: float = 0.0
    """Of it, spent in the contender's own code."""
    extra: Mapping[str, float] = field(default_factory=dict)
    """Figures of one contender's own, by name."""
