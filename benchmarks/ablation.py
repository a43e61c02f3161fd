"""What policies.py compares: the price with each of its terms left out in turn, other routers, and the traffic."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal, TextIO

import msgspec

from router.core.policy import Ask, Policy
from router.core.price import Weights, priced
from router.core.types import Score
from router.replay.chats import Chats
from router.replay.contender import Contender
from router.replay.contenders import contender_of
from router.replay.demand import Agents, OpenLoop, Workload
from router.replay.plan import Plan
from router.replay.rivals.names import RIVALS
from router.replay.traces.coding import read_coding_sessions
from router.replay.traces.mooncake import read_mooncake
from router.replay.traces.types import TraceRequest
from router.replay.warmroute import UNHELD, Warmroute
from router.sim.engine import Engine
from router.sim.types import EngineConfig

DATA = Path(__file__).parent / "data"
CONVERSATION = DATA / "mooncake_conversation_15_minutes.jsonl.gz"
SYNTHETIC = "mooncake_synthetic_trace.jsonl.gz"
AGENTS = "claude_code_sessions_a.jsonl.gz"

WHOLE = "affinity"
"""The row that the others are compared with."""

HOLDING = "holding"
"""No term of the price, but what it does not do without."""


def without(*fields: Literal["queue_s", "own_s", "evicted_s", "streams_s"], weights: Weights | None = None) -> Policy:
    """Return the price less what these columns of its table have."""
    policy = priced(weights or Weights())

    def price(ask: Ask) -> list[Score]:
        return [_less(score, sum(getattr(score, field) for field in fields)) for score in policy(ask)]

    return price


def _less(score: Score, left_out_s: float) -> Score:
    return msgspec.structs.replace(score, total_s=score.total_s - left_out_s)


TERMS: Mapping[str, Policy] = {
    "queue": without("queue_s"),
    "own": without("own_s", weights=Weights(delay=0.0, following=0.0, evicted=0.0)),
    "following": priced(Weights(following=0.0)),
    "delay": priced(Weights(delay=0.0)),
    "share": priced(Weights(share=0.0, crowded_share=0.0)),
    "evicted": without("evicted_s"),
    "streams": without("streams_s"),
}
"""By the term that is left out. `own`: with all that is a multiple of it, so that queue and share are left."""

FORMER = "former"
"""The price of ADR 5: own work 13 times, whatever goes on around it."""

OTHERS: Mapping[str, Policy] = {
    FORMER: priced(Weights(delay=0.0, following=12.0, share=13.0, crowded_share=0.0, evicted=0.0, stream=0.0)),
}

ROWS = [WHOLE, *TERMS, HOLDING, *OTHERS]


def title(row: str) -> str:
    """What a row is called in tables."""
    if row == FORMER:
        return "the former price"
    return row if row == WHOLE or row in RIVALS else f"without {row}"


def policy_name(row: str) -> str:
    """Return the name that the plan of a row has."""
    return row if row in RIVALS else WHOLE + (UNHELD if row == HOLDING else "")


def contender(row: str, plan: Plan, engines: Sequence[Engine]) -> Contender:
    """Return what a row stands for."""
    policy = TERMS.get(row) or OTHERS.get(row)
    return Warmroute(plan, policy) if policy else contender_of(plan, engines)


@dataclass(frozen=True, slots=True)
class Load:
    """Traffic on eight replicas."""

    key: str
    title: str
    kv_tokens: int
    """Of each replica."""
    warm_up_minutes: float
    file: str = ""
    """Needed for it; empty: none, or one that comes with the code."""
    decode_bound: bool = False
    """Streams are the limit, not prefill."""

    @property
    def engine(self) -> EngineConfig:
        """Those that policies are compared on; where decoding is the limit, six times as fast in prefill, and four
        times as much slower for each stream: half of what it can decode at once makes a step 60 ms long."""
        engine = EngineConfig(kv_tokens=self.kv_tokens)
        return replace(engine, prefill_tokens_per_s=50_000.0, decode_per_seq_s=0.0012) if self.decode_bound else engine


LOADS = {
    load.key: load
    for load in (
        Load("chats:3", "chats, 3 new ones/s", 300_000, 2.0),
        Load("chats:4", "chats, 4 new ones/s", 300_000, 2.0),
        Load("conversation", "Mooncake conversation", 1_250_000, 1.0),
        Load("synthetic", "Mooncake synthetic", 1_250_000, 1.0, SYNTHETIC),
        Load("agents:40", "40 coding agents", 1_000_000, 10.0, AGENTS),
        Load("agents:100", "100 coding agents", 1_000_000, 10.0, AGENTS),
        Load("chats:3:decode", "chats, 3 new ones/s, decode-bound", 300_000, 2.0, decode_bound=True),
    )
}


def workload_of(load: Load, minutes: float, traces: Path | None) -> Workload:
    """Return the traffic of a load, for `minutes` with its warm-up. `traces`: the folder of `load.file`."""
    kind, number, *_ = f"{load.key}:".split(":")
    if kind == "chats":
        return Chats(float(number), minutes * 60)
    if kind == "agents":
        most_tokens = load.kv_tokens // 2
        return Agents(
            load.title, _sessions(_found(traces) / AGENTS), int(number), load.warm_up_minutes * 60, most_tokens
        )
    return OpenLoop(load.title, _requests(_found(traces) / load.file if load.file else CONVERSATION))


def _found(traces: Path | None) -> Path:
    if traces is None:
        raise ValueError("this load needs --traces")
    return traces


@contextmanager
def _lines(path: Path) -> Iterator[TextIO]:
    with gzip.open(path, "rt") as lines:
        yield lines


@cache
def _sessions(path: Path) -> list[list[TraceRequest]]:
    with _lines(path) as lines:
        return list(read_coding_sessions(lines))


@cache
def _requests(path: Path) -> list[TraceRequest]:
    with _lines(path) as lines:
        return list(read_mooncake(lines))
