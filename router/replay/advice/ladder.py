"""The ways to have a session's history at its next turn, each as a run of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import isnan

from router.replay.advice.arithmetic import gib_of, tokens_of
from router.replay.advice.measured import Measured
from router.replay.plan import Plan
from router.sim.pins import PinRules
from router.sim.tier import Offload

HOST_FACTORS = (1, 2, 4)
"""Sizes of host memory to try where none are given, over the least power of two that is above the GPU's cache: copies
are made when blocks are filled, so a smaller one holds nothing that the GPU does not."""

HISTORY_RATIOS = (0.5, 0.25)
"""Limits of a prompt to try where none are given, over the 95th percentile of prompts."""

LEAST_HISTORY_TOKENS = 1_000
"""Limits are whole thousands."""


class Kind(StrEnum):
    """The rungs, what costs least first. Pinning stands last: no vLLM does it."""

    FREE = "free"
    OFFLOAD = "offload"
    STORE = "store"
    SHORTEN = "shorten"
    REPLICAS = "replicas"
    PIN = "pin"


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is tried, and how fast copies come back. Empty: by the fleet and the traffic."""

    kv_token_bytes: int
    """KV cache of one token."""
    host_bytes_per_s: float
    """From a host's memory to its GPUs."""
    store_bytes_per_s: float
    """From a shared store to one replica."""
    host_gib: tuple[int, ...] = ()
    """Of each replica."""
    store_gib: tuple[int, ...] = ()
    """Of the whole fleet."""
    history_tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Rung:
    """One thing to try."""

    kind: Kind
    name: str
    plan: Plan
    costs: str
    """In memory, in words."""
    size: int = 0
    """GiB, tokens or replicas, by the kind."""


def ladder(plan: Plan, measured: Measured, sizes: Sizes) -> list[Rung]:
    """Return the rungs, the fleet as it is first; each `plan` is this one with one thing changed."""
    return [
        Rung(Kind.FREE, "free, prefix cache", plan, "nothing"),
        *_pins(plan, measured, sizes),
        *_offloads(plan, sizes),
        *_stores(plan, sizes),
        *_cuts(plan, measured, sizes),
        *_larger(plan),
    ]


def gpu_gib(plan: Plan, sizes: Sizes) -> float:
    """GiB of KV cache on one replica."""
    return gib_of(plan.engine.kv_tokens, sizes.kv_token_bytes)


def host_gib(plan: Plan, sizes: Sizes) -> tuple[int, ...]:
    """GiB of host memory to try, ascending."""
    if sizes.host_gib:
        return tuple(sorted(set(sizes.host_gib)))
    least = 1 << int(gpu_gib(plan, sizes)).bit_length()
    return tuple(least * factor for factor in HOST_FACTORS)


def _pins(plan: Plan, measured: Measured, sizes: Sizes) -> list[Rung]:
    if isnan(measured.think_p90_s):
        return []
    rules = PinRules(measured.think_p90_s)
    gib = gib_of(measured.present_tokens, sizes.kv_token_bytes)
    costs = f"{rules.share_ratio:.0%} of GPU caches; all present sessions: {gib:,.1f} GiB"
    return [Rung(Kind.PIN, f"pin for {rules.hold_s:,.0f} s", replace(plan, pins=rules), costs)]


def _offloads(plan: Plan, sizes: Sizes) -> list[Rung]:
    speed = sizes.host_bytes_per_s / sizes.kv_token_bytes
    return [
        Rung(
            Kind.OFFLOAD,
            f"offload, {gib:,} GiB each",
            replace(plan, offload=Offload(tokens_of(gib, sizes.kv_token_bytes), speed)),
            f"host memory: {plan.replicas} x {gib:,} GiB",
            gib,
        )
        for gib in host_gib(plan, sizes)
    ]


def _stores(plan: Plan, sizes: Sizes) -> list[Rung]:
    speed = sizes.store_bytes_per_s / sizes.kv_token_bytes
    middle = host_gib(plan, sizes)
    given = sizes.store_gib or (middle[len(middle) // 2] * plan.replicas,)
    return [
        Rung(
            Kind.STORE,
            f"shared store, {gib:,} GiB",
            replace(plan, offload=Offload(tokens_of(gib, sizes.kv_token_bytes), speed, shared=True)),
            f"store: {gib:,} GiB",
            gib,
        )
        for gib in sorted(set(given))
    ]


def _cuts(plan: Plan, measured: Measured, sizes: Sizes) -> list[Rung]:
    limits = sizes.history_tokens or _limits(measured)
    return [
        Rung(
            Kind.SHORTEN,
            f"prompts to {limit:,} tokens",
            replace(plan, history_tokens=limit),
            "nothing; the model sees less",
            limit,
        )
        for limit in sorted(set(limits), reverse=True)
    ]


def _limits(measured: Measured) -> tuple[int, ...]:
    if isnan(measured.prompt_p95_tokens):
        return ()
    limits = (int(measured.prompt_p95_tokens * ratio) // LEAST_HISTORY_TOKENS for ratio in HISTORY_RATIOS)
    return tuple(limit * LEAST_HISTORY_TOKENS for limit in limits if limit)


def _larger(plan: Plan) -> list[Rung]:
    counts = sorted({plan.replicas + 1, plan.replicas + 2, plan.replicas * 2})
    return [
        Rung(
            Kind.REPLICAS,
            f"{count:,} replicas",
            replace(plan, replicas=count),
            f"GPUs of {count - plan.replicas} more",
            count,
        )
        for count in counts
    ]
