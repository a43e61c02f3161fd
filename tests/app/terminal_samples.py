"""What routers say, in the admin API's form, with figures that can be told apart."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from router.app.terminal.figures import WINDOWS, DecisionRow, Overview
from router.app.terminal.view import View, Watched

CAUSES = ("evicted", "system-changed", "spilled", "head-trimmed", "stamped", "restarted")
NOW_S = 1_700_000_000.0


def totals(requests: int = 100, **fields: Any) -> dict[str, Any]:
    whole = {
        "requests": requests,
        "failed": 3,
        "prompt_tokens": requests * 1_000,
        "predicted_cached_tokens": requests * 800,
        "reported_prompt_tokens": requests * 900,
        "engine_cached_tokens": requests * 675,
        "counter_queries_tokens": requests * 1000,
        "counter_hits_tokens": requests * 700,
        "hit_ratio": 0.75,
        "predicted_ratio": 0.8,
        "lost_tokens": requests * 30,
        "saved_prefill_s": requests * 0.5,
    }
    return whole | fields


def spread(count: int, p50_s: float | None, p95_s: float | None) -> dict[str, Any]:
    return {"count": count, "p50_s": p50_s, "p95_s": p95_s}


def window(requests: int = 100, **fields: Any) -> dict[str, Any]:
    causes = [
        {"cause": cause, "turns": 6 - place, "tokens": 1_200 - 200 * place, "prefill_s": 0.5}
        for place, cause in enumerate(CAUSES)
    ]
    causes.append({"cause": "first-seen", "turns": 15, "tokens": 0, "prefill_s": 0.0})
    whole = totals(requests) | {
        "causes": causes,
        "reasons": {"warm": requests - 20, "new": 15, "spilled": 5},
        "errors": {"no_replica": 2},
        "ttft": {"warm": spread(80, 0.21, 0.84), "cold": spread(20, 1.4, 4.2)},
        "ttft_by_length": [],
        "phases": {"overhead": spread(requests, 0.0002, 0.0004), "decode": spread(requests, 1.5, 6.0)},
        "returns": {"bounds_s": [1.0], "in_time": [2, 1], "too_late": [0, 1]},
        "saved_ttft_s": 1.31,
    }
    return whole | fields


def replica(number: int, **fields: Any) -> dict[str, Any]:
    whole = {
        "id": f"r-{number:08x}",
        "name": None,
        "url": f"http://10.0.0.{number}:8000",
        "rank": None,
        "state": "ready",
        "cause": None,
        "asleep": False,
        "pressure_ratio": 0.12,
        "ledger": {"uncached_tokens": 1_200, "streams": 3},
        "mirror": {"blocks": 10, "bytes": 5_000, "fill_ratio": 0.87, "error_ratio": 0.02},
        "windows": {name: totals(10 * factor) for name, factor in zip(WINDOWS, (1, 12, 288), strict=True)},
        "eviction_age_s": 751.0,
    }
    return whole | fields


def models(*names: str) -> dict[str, Any]:
    return {name: {window: totals() for window in WINDOWS} for name in names}


def fleet(count: int) -> list[dict[str, Any]]:
    return [replica(number) for number in range(1, count + 1)]


def overview(**fields: Any) -> dict[str, Any]:
    whole = {
        "now_s": NOW_S,
        "version": "1.2.3",
        "policy": "affinity",
        "uptime_s": 11_543.0,
        "windows": {name: window(100 * factor) for name, factor in zip(WINDOWS, (1, 12, 288), strict=True)},
        "models": models("model-0"),
        "replicas": fleet(2),
        "queue": {"requests": {"interactive": 2, "batch": 11}, "bytes": 182_000},
        "routers": [{"id": "a", "self": True, "heard_s": 0.0, "ledgers": {}}],
        "redis": {"address": "redis://x", "state": "slow", "cause": None, "backlog": 0, "dropped": {}},
    }
    return whole | fields


def decision(number: int = 1, /, **fields: Any) -> dict[str, Any]:
    whole = {
        "request_id": f"id-{number}",
        "model": "model-0",
        "status": 200,
        "decision": {"replica": "r-00000001", "reason": "warm", "prompt_tokens": 3_100, "matched_tokens": 2_900},
        "usage": {"prompt_tokens": 3_133, "cached_tokens": 2_896, "completion_tokens": 5},
        "ttft_s": 0.21,
        "total_s": 2.2,
        "error": None,
        "turn": {"lost_tokens": 0, "cause": None},
    }
    return whole | fields


def watched(shown: dict[str, Any], *decisions: dict[str, Any], label: str = "http://127.0.0.1:9090") -> Watched:
    return Watched(
        label,
        msgspec.json.decode(json.dumps(shown), type=Overview),
        msgspec.json.decode(json.dumps(decisions), type=list[DecisionRow]),
    )


def view(*routers: Watched, chosen: str = "5m") -> View:
    return View(list(routers), chosen, NOW_S)
