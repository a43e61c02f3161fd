"""Rivals by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from router.replay.plan import Plan
from router.replay.rivals.hashing import BoundedPrefixHash, SessionRing
from router.replay.rivals.index import PrefixIndex
from router.replay.rivals.plain import LeastRequests, RoundRobin
from router.replay.rivals.rival import Picker, Rival
from router.replay.rivals.sticky import Sticky
from router.replay.rivals.tree import LAUNCHER, TreeSwitch
from router.replay.rivals.weighted import Weighted, Weights
from router.replay.rivals.work import WorkProduct, WorkSum


def _index(plan: Plan) -> PrefixIndex:
    return PrefixIndex(plan.replicas, plan.engine.block_tokens, plan.engine.kv_tokens)


RIVALS: Mapping[str, Callable[[Plan], Picker]] = {
    "rr": lambda plan: RoundRobin(),
    "least-requests": lambda plan: LeastRequests(plan.replicas),
    "session-ring": lambda plan: SessionRing(plan.replicas, plan.engine.block_tokens),
    "bounded-prefix-hash": lambda plan: BoundedPrefixHash(plan.replicas, plan.engine.block_tokens),
    "tree-switch": lambda plan: TreeSwitch(plan.replicas, plan.engine.block_tokens),
    "tree-switch-32": lambda plan: TreeSwitch(plan.replicas, plan.engine.block_tokens, LAUNCHER),
    "weighted-2-1-1": lambda plan: Weighted(_index(plan), Weights(2.0, 1.0, 1.0), plan.seed),
    "weighted-4-1-1": lambda plan: Weighted(_index(plan), Weights(4.0, 1.0, 1.0), plan.seed),
    "sticky": lambda plan: Sticky(plan.replicas, _index(plan), plan.engine.prefill_tokens_per_s),
    "tokens-batch": lambda plan: WorkProduct(plan.replicas, _index(plan)),
    "prefill-decode": lambda plan: WorkSum(plan.replicas, _index(plan)),
}
"""`plan.engine` must be in the workload's blocks."""


def rival(plan: Plan) -> Rival:
    """Return the rival that a plan names. KeyError: there is none."""
    return Rival(plan.replicas, RIVALS[plan.policy](plan))
