"""Tiny worlds: blocks of 10 tokens, engines that prefill 100 tokens a second, so that times are told in the head."""

from __future__ import annotations

from collections.abc import Sequence

from router.replay.demand import OpenLoop
from router.replay.plan import Plan
from router.replay.traces.types import TraceRequest, runs_of
from router.sim.types import EngineConfig

BLOCK_TOKENS = 10

ENGINE = EngineConfig(
    kv_tokens=10_000,
    block_tokens=BLOCK_TOKENS,
    prefill_tokens_per_s=100.0,
    prefill_slowdown_per_seq=0.0,
    decode_s=0.125,
    decode_per_seq_s=0.0,
)


def asked(at_s: float, blocks: Sequence[int], more: int = 5, output: int = 3, session: str = "") -> TraceRequest:
    """Return a request of whole blocks by their identities, and `more` tokens that fill none."""
    return TraceRequest(
        session_id=session,
        arrives_s=at_s,
        think_s=None,
        prompt_tokens=len(blocks) * BLOCK_TOKENS + more,
        output_tokens=output,
        finish_reason="stop",
        block_tokens=BLOCK_TOKENS,
        block_runs=runs_of(blocks),
    )


def trace(*requests: TraceRequest) -> OpenLoop:
    return OpenLoop("tiny", requests)


def plan(policy: str, **changes: object) -> Plan:
    given: dict[str, object] = {"engine": ENGINE, "replicas": 2, "minutes": 10.0, **changes}
    return Plan(policy, **given)  # type: ignore[arg-type]
