"""Records of finished requests for tests of those that are told of them."""

from __future__ import annotations

from typing import Any

from router.core.types import Decision, OutcomeKind, Reason, Score, Usage
from router.ports import RequestRecord


def decision(replica: str = "r-1", matched_tokens: int = 480) -> Decision:
    score = Score(replica, 0.1, 0.05, 0.05, 0.0, 4, matched_tokens)
    return Decision(replica, Reason.WARM, [score], 500, matched_tokens, replica)


def record(**fields: Any) -> RequestRecord:
    whole: dict[str, Any] = {
        "request_id": "id-1",
        "method": "POST",
        "path": "/v1/chat/completions",
        "model": "m",
        "shape": "chat",
        "streaming": True,
        "batch": False,
        "client": "",
        "status": 200,
        "outcome": OutcomeKind.COMPLETED,
        "decision": decision(),
        "source": "local",
        "attempts": 1,
        "usage": Usage(500, 464, 20, "stop"),
        "overhead_s": 0.000_12,
        "queued_s": 0.0,
        "retried_s": 0.0,
        "connect_s": 0.0,
        "prefill_s": 0.249_88,
        "decode_s": 1.25,
        "ttft_s": 0.25,
        "total_s": 1.5,
        "ended_s": 1_000.0,
        "turn": None,
        "error": None,
    }
    return RequestRecord(**(whole | fields))
