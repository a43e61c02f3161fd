"""All contenders by name."""

from __future__ import annotations

from collections.abc import Sequence

from router.replay import oracles
from router.replay.contender import Contender
from router.replay.plan import Plan
from router.replay.rivals.names import RIVALS, rival
from router.replay.several import Several
from router.replay.warmroute import NAMES as WARMROUTE
from router.replay.warmroute import Warmroute
from router.sim.engine import Engine


def names() -> list[str]:
    """Return the names that a plan may ask for: Warmroute's, rivals', oracles'."""
    return [*WARMROUTE, *RIVALS, *oracles.NAMES]


def contender_of(plan: Plan, engines: Sequence[Engine]) -> Contender:
    """Return the contender that a plan names, in front of `engines`; `plan.engine` is in the workload's blocks.

    ValueError: nobody has this name, or there can't be several of it.
    """
    if plan.policy in WARMROUTE:
        return Warmroute(plan) if plan.routers == 1 else Several(plan)
    if plan.routers != 1 and plan.policy in names():
        raise ValueError(f"{plan.policy} is replayed as one router, not as {plan.routers}: only Warmroute's share")
    if plan.policy in RIVALS:
        return rival(plan)
    if plan.policy in oracles.NAMES:
        return oracles.oracle(plan, engines)
    raise ValueError(f"no policy {plan.policy!r}; there are {', '.join(names())}")


def shares_cache(policy: str) -> bool:
    """Tell whether a contender's engines have one cache together."""
    return policy == oracles.POOLED
