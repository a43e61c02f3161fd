"""What to do about each cause of a miss, in one sentence."""

from __future__ import annotations

from router.core.misses.types import Cause

CURES: dict[str, str] = {
    Cause.FIRST_SEEN: "nothing to cure: no earlier turn of this conversation is known to this router",
    Cause.SPREAD: "nothing to cure: new sessions are spread, so that no replica gets all that begin alike",
    Cause.EVICTED: "give the engines more KV cache or the fleet more replicas; what is evicted now was unused for the "
    "time that `warmroute top` shows as evicts",
    Cause.RESTARTED: "find out why the replica restarted or slept: its cache is gone, and no router can bring it back",
    Cause.SPILLED: "add replicas if this happens often: the home was so busy that waiting would have cost more",
    Cause.FAILOVER: "see why the home is not available: its state and cause are in /api/fleet",
    Cause.DRAINED: "nothing to cure: somebody drains the home, and its sessions move once",
    Cause.POLICY: "run the router with --policy affinity, which sends a turn to its history",
    Cause.MODEL_CHANGED: "keep one model or adapter for a conversation: each has a cache of its own",
    Cause.SALT_CHANGED: "send the same cache_salt with all turns of a conversation",
    Cause.TEMPLATE_CHANGED: "send the same chat_template, chat_template_kwargs and documents with every turn",
    Cause.TOOLS_CHANGED: "send all tools from the first turn on, and say with tool_choice which may be called",
    Cause.TOOLS_REORDERED: "send the tools in one order, for instance sorted by name",
    Cause.SYSTEM_CHANGED: "keep the system prompt as it is, and put what changes into the newest message",
    Cause.STAMPED: "take the time, counter or id out of that message, or put it into the newest one",
    Cause.REFORMATTED: "send earlier messages exactly as they were sent and received, character by character",
    Cause.HEAD_TRIMMED: "cut many turns at once and seldom: each cut costs all that stands behind it",
    Cause.EDITED: "only append: leave earlier messages as they are, and correct them in a new one",
}
"""Half sentences, to stand behind a colon."""
