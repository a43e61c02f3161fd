"""What is counted of requests: the kinds of series and the fields of each."""

from __future__ import annotations

from router.core.history.series import Name

LAYOUT = 2
"""To be raised when a field gets another meaning or another place: what was counted before is not taken over then."""

FLEET = Name("fleet")
MODEL, REPLICA = "model", "replica"
"""These three have the fields of a tally."""

(
    REQUESTS,
    FAILED,
    PROMPT_TOKENS,
    PREDICTED_TOKENS,
    REPORTED_TOKENS,
    CACHED_TOKENS,
    LOST_TOKENS,
    SAVED_US,
    WARM_TURNS,
    ERROR_TOKENS,
    COUNTER_QUERIES,
    COUNTER_HITS,
) = range(12)
"""Fields of a tally. REPORTED_TOKENS: prompt tokens of answers in which the engine said how many were cached;
CACHED_TOKENS: those. SAVED_US: microseconds of prefill that were saved, WARM_TURNS by so many requests. ERROR_TOKENS:
by how many the prediction was wrong, where the engine said so. COUNTER_QUERIES, COUNTER_HITS: tokens that the engines'
own counters of their prefix caches rose by; of models nobody counts them."""

TALLY_FIELDS = 12

REASON, ERROR = "reason", "error"
"""One field: requests."""

CAUSE = "cause"
TURNS, TOKENS, PREFILL_US = range(3)
"""Fields of a cause: turns that missed by it, tokens and microseconds of prefill that it cost."""

WARM, COLD = "ttft-warm", "ttft-cold"
"""Histograms of the time to the first byte of streamed answers, one for each length of prompt."""

LENGTHS_TOKENS = (256, 1_024, 4_096, 16_384, 65_536)
"""Prompt lengths up to which a series goes; the last series has what is longer."""

LENGTHS = (*map(str, LENGTHS_TOKENS), "more")

PHASE = "phase"
PHASES = ("overhead", "queue", "retry", "connect", "prefill", "decode")
"""Histograms."""

IN_TIME, TOO_LATE = "in-time", "too-late"
"""Sessions that came back, by how long they had been away; too late is what was evicted meanwhile."""

RETURN_BOUNDS_S = (1, 2, 5, 10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 5_120)
"""Ends of the fields of returns, of which the last has none: from a tool's answer to a chat that is taken up again
after lunch. A full cache evicts somewhere in between."""
