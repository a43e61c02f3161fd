"""All contenders by name."""

from __future__ import annotations

from collections.abc import Sequence

from router.replay.contender import Contender
from router.replay.plan import Plan
from router.replay.warmroute import NAMES as WARMROUTE
from router.replay.warmroute import Warmroute
from router.sim.engine import Engine


def names() -> list[str]:
    """Return the names that a plan may ask for: Warmroute's, rivals', oracles'."""
    return list(WARMROUTE)


def contender_of(plan: Plan, engines: Sequence[Engine]) -> Contender:
    """Return the contender that a plan names, in front of `engines`. ValueError: nobody has this name."""
    if plan.policy in WARMROUTE:
        return Warmroute(plan)
    raise ValueError(f"no policy {plan.policy!r}; there are {', '.join(names())}")
