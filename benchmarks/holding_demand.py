"""The workloads of holding.py and overload.py: generated chats, recorded coding agents in closed loop, an open loop."""

import gzip
from pathlib import Path

from router.replay.demand import Agents, OpenLoop
from router.replay.traces.coding import read_coding_sessions
from router.replay.traces.mooncake import read_mooncake


def coding_agents(trace: Path, live: int, batch_ratio: float, kv_tokens: int, warm_up_s: float) -> Agents:
    """`live` agents at once; no request takes more than half a cache."""
    with gzip.open(trace, "rt") as lines:
        sessions = list(read_coding_sessions(lines))
    return Agents(f"{live} agents live", sessions, live, warm_up_s, kv_tokens // 2, batch_ratio)


def open_loop(trace: Path, speed: float, batch_ratio: float) -> OpenLoop:
    """A trace by its time stamps, `speed` times as fast."""
    with gzip.open(trace, "rt") as lines:
        return OpenLoop(f"trace at {speed:g}x", list(read_mooncake(lines)), speed, batch_ratio)
