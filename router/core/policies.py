"""All policies by name."""

from __future__ import annotations

from router.core.policy import Policy, least_load, prefix_hash, round_robin, session_hash
from router.core.price import affinity

POLICIES: dict[str, Policy] = {
    "affinity": affinity,
    "session-hash": session_hash,
    "prefix-hash": prefix_hash,
    "least-load": least_load,
    "round-robin": round_robin,
}
