"""Waits until a router that has just started knows its engines."""

from __future__ import annotations

import threading
import time

import httpx

DEADLINE_S = 30.0


def until_known(router: str, replicas: int) -> None:
    """Wait until so many replicas are up and a model is listed."""
    deadline_s = time.monotonic() + DEADLINE_S
    looked = threading.Event()
    with httpx.Client(base_url=router, trust_env=False) as client:
        while not (client.get("/readyz").json().get("up") == replicas and client.get("/v1/models").json()["data"]):
            assert time.monotonic() < deadline_s, client.get("/readyz").text
            looked.wait(0.02)
