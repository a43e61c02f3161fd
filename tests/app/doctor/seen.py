"""Engines and router views as doctor would have seen them, made from a real exposition."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from router.app.doctor.asking import Reply
from router.app.doctor.engines import Engine, ModelCard, Place
from router.app.doctor.findings import Check, Finding, Level
from router.app.doctor.page import Page, read_page
from router.app.doctor.routers import RouterView

EXCERPT = (Path(__file__).parents[2] / "sim" / "data" / "vllm_metrics_excerpt.txt").read_text()
"""Of a real vLLM 0.32: blocks of 32 tokens, 10,240 in all."""

FOUND = Reply(200)
REFUSED = Reply(failure="the connection is refused", refused=True)
MISSING = Reply(404)


def answer(told: Any, status: int = 200, **headers: str) -> Reply:
    return Reply(status, httpx.Headers(headers), json.dumps(told).encode())


def page(*changes: tuple[str, str], more: str = "") -> Page:
    text = EXCERPT
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    read = read_page(text + more)
    assert read is not None
    return read


def row(number: int = 1, **fields: Any) -> dict[str, Any]:
    """A replica's row of /api/fleet."""
    known = {"id": f"r-{number:08x}", "url": f"http://gpu-{number}:8000", "rank": None, "state": "ready", "cause": None}
    more = {"asleep": False, "models": ["tiny"], "engine": {"kv_tokens": 10_240}, "ledger": {"streams": 0}}
    return known | more | fields


def place(number: int = 1, *rows: dict[str, Any]) -> Place:
    return Place(f"http://gpu-{number}:8000", rows or (row(number),))


def engine(number: int = 1, **fields: Any) -> Engine:
    """An engine with nothing wrong, unless `fields` say otherwise."""
    seen: dict[str, Any] = {
        "place": place(number),
        "health": FOUND,
        "version": "0.32.0",
        "page": page(),
        "metrics": FOUND,
        "models": (ModelCard("tiny", 2_048, "/models/tiny", None),),
        "listing": FOUND,
        "event_sources": {},
        "server_info": None,
        "is_router": False,
        "identities": frozenset({(float(number), 1.0)}),
    }
    return Engine(**seen | fields)


def view(*rows: dict[str, Any], **fields: Any) -> RouterView:
    """A router with nothing wrong, and these replicas."""
    fleet: dict[str, Any] = {
        "policy": "affinity",
        "replicas": list(rows),
        "queue": {"requests": {}},
        "redis": None,
        "routers": [],
    }
    fleet |= fields.pop("fleet", {})
    seen: dict[str, Any] = {
        "live": FOUND,
        "ready": answer({"status": "ok", "replicas": len(rows), "up": len(rows)}),
        "models": answer({"data": [{"id": "tiny"}]}),
        "fleet": answer(fleet),
        "schema": answer({"info": {"version": "0.1.0"}}),
        "replicas": list(rows),
    }
    return RouterView(**seen | fields)


def found(findings: list[Finding], check: Check) -> Finding:
    """The one finding of a check."""
    (one,) = [finding for finding in findings if finding.check is check]
    return one


def level(findings: list[Finding], check: Check) -> Level:
    return found(findings, check).level
