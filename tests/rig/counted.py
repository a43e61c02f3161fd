"""The command line of what sends so many requests of a seed."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

Play = Callable[[int, int], Coroutine[Any, Any, int]]
"""Plays a seed so many times; returns the exit code."""


def run(play: Play, description: str, what: str, count: int) -> int:
    """Run from the command line; return the exit code. `count`: so many where none is said."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--count", type=int, default=count, help=f"{what} (default {count})")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default 1)")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(play(options.seed, options.count))
