"""What soak.py reads of the routers while they run, and what it makes of it: is memory flat, is anything left over."""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from benchmarks.soak_stage import Stage

Reading = dict[str, float]

RSS, FILES, TASKS = "process_resident_memory_bytes", "process_open_fds", "warmroute_tasks"
BOUNDED = ("warmroute_index_bytes", "warmroute_touch_kept_bytes", "warmroute_queued_bytes", "warmroute_bodies_bytes")
"""Memory that has a bound of its own and says how much it is; it may still fill when the run ends."""
COUNTS = ("warmroute_inflight_requests", "warmroute_queued_requests", "warmroute_peer_inflight_requests")
"""All 0 when nobody asks for anything."""
OTHERS = (
    "process_cpu_seconds_total", "warmroute_redis_backlog", "warmroute_known_routers", "warmroute_replica_up",
    "warmroute_config_reload_success", "warmroute_prompt_tokens_total",
)  # fmt: skip
NAMES = (RSS, FILES, TASKS, *BOUNDED, *COUNTS, *OTHERS)
_SAMPLE = re.compile(r"^([a-z_]+)(\{[^}]*\})? (\S+)$", re.MULTILINE)
_MISSED = re.compile(r'^warmroute_missed_tokens_total\{cause="([a-z-]+)"\} (\S+)$', re.MULTILINE)

MB = 1e6
LEAK_MB_PER_H = 2.0
"""What is let pass as no leak in a run of any length: 50 MB a day, less than the logs of that day."""
NOISE_MB = 6.0
"""By how much two readings of a process differ that does not grow: arenas come and go, a burst leaves free pages."""


def read(page: str) -> Reading:
    """Sums over all labels of what is looked at, and `missed:CAUSE`."""
    found = dict.fromkeys(NAMES, 0.0)
    for name, _, value in _SAMPLE.findall(page):
        if name in found:
            found[name] += float(value)
    return found | {f"missed:{cause}": float(value) for cause, value in _MISSED.findall(page)}


class Watch:
    """Reads every router's metrics each few seconds and writes what it saw, a JSON line each."""

    def __init__(self, stage: Stage, every_s: float, lines: TextIO, run: str) -> None:
        self.stage, self.every_s, self.lines, self.run = stage, every_s, lines, run
        self.began_s = time.monotonic()
        self.readings: dict[int, list[tuple[float, Reading]]] = {port: [] for port in stage.admin_ports}
        self.problems: Counter[str] = Counter()
        self.extra: Callable[[], Mapping[str, float]] = dict

    def write(self, kind: str, **more: Any) -> None:
        line = {"run": self.run, "at_s": round(time.monotonic() - self.began_s, 2), "kind": kind, **more}
        self.lines.write(json.dumps(line) + "\n")
        self.lines.flush()

    async def look(self) -> dict[int, Reading]:
        """Read them once, now."""
        now = {}
        for port in self.stage.admin_ports:
            try:
                now[port] = read(await self.stage.page(port))
            except OSError as error:
                self.problems[f"metrics: {error}"] += 1
                continue
            self.readings[port].append((time.monotonic() - self.began_s, now[port]))
            self.write("reading", admin_port=port, **now[port], **self.extra())
        return now

    async def keep_looking(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(self.every_s)

    async def look_until(self, fine: Callable[[Mapping[int, Reading]], bool], deadline_s: float) -> dict[int, Reading]:
        """Read until all is as it should be, so long at the most; return the last reading."""
        until_s = time.monotonic() + deadline_s
        while True:
            now = await self.look()
            if fine(now) or time.monotonic() > until_s:
                return now
            await asyncio.sleep(0.5)


def unbounded_bytes(reading: Reading) -> float:
    return reading[RSS] - sum(reading[name] for name in BOUNDED)


def slope_per_s(points: Sequence[tuple[float, float]]) -> float:
    """Of the straight line with the least squares; 0 of fewer than two points."""
    if len(points) < 2:
        return 0.0
    middle_s = sum(at_s for at_s, _ in points) / len(points)
    middle = sum(value for _, value in points) / len(points)
    spread = sum((at_s - middle_s) ** 2 for at_s, _ in points)
    return sum((at_s - middle_s) * (value - middle) for at_s, value in points) / spread if spread else 0.0


def growth(readings: Iterable[tuple[float, Reading]], start_s: float, end_s: float) -> Reading:
    """How fast one router grew between two times, and what would be let pass in so long."""
    points = [(at_s, unbounded_bytes(reading)) for at_s, reading in readings if start_s <= at_s <= end_s]
    hours = (points[-1][0] - points[0][0]) / 3_600 if len(points) > 1 else 0.0
    return {
        "grown_mb_per_h": slope_per_s(points) * 3_600 / MB,
        "allowed_mb_per_h": LEAK_MB_PER_H + NOISE_MB / hours if hours else float("inf"),
    }


def log_tally(path: Path) -> tuple[Counter[str], int]:
    """What the log says besides requests, with its numbers left out, and how many exceptions are in it."""
    said: Counter[str] = Counter()
    exceptions = 0
    with path.open(errors="replace") as lines:
        for line in lines:
            if line.startswith('{"event":"request_finished"'):
                continue
            exceptions += line.startswith("Traceback") or "xception in" in line or "never retrieved" in line
            said[re.sub(r"r-[0-9a-f]{8}|[0-9]+(\.[0-9]+)?", "#", line.strip())] += 1
    return said, exceptions
