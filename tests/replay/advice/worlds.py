"""A world whose answers are arithmetic: 5 people, 3 turns each, 30 s of thinking after turns of 4 s.

A turn brings 200 new tokens, 2 s of prefill, and an answer of 17, 2 s of decoding: prompts of 200, 400 and 600 tokens.
They begin 6.8 s apart and go on every 34 s, so that nobody ever waits for anybody while all that was sent is a hit.
"""

from __future__ import annotations

from router.replay.demand import ClosedLoop
from router.replay.plan import Plan
from router.replay.traces.types import TraceRequest, runs_of
from router.sim.types import EngineConfig

PEOPLE, TURNS = 5, 3
BLOCK_TOKENS = 10
ENGINE = EngineConfig(
    kv_tokens=10_000,
    block_tokens=BLOCK_TOKENS,
    prefill_tokens_per_s=100.0,
    prefill_slowdown_per_seq=0.0,
    decode_s=0.125,
    decode_per_seq_s=0.0,
)
ROOMY = Plan("affinity", ENGINE, replicas=1, minutes=5.0)

HELD_TOKENS = 617
"""Of a session after its last turn."""
CEILING_RATIO = (200 + 400) / (200 + 400 + 600)


def turn(person: int, number: int, named: bool = True) -> TraceRequest:
    starts_s = 6.8 * person
    return TraceRequest(
        session_id=f"person {person}" if named else "",
        arrives_s=starts_s + 34.0 * number,
        think_s=30.0 if number else 0.0,
        prompt_tokens=200 * (number + 1),
        output_tokens=17,
        finish_reason="stop",
        block_tokens=BLOCK_TOKENS,
        block_runs=runs_of(range(person * 1_000, person * 1_000 + 20 * (number + 1))),
    )


def sessions(named: bool = True) -> list[list[TraceRequest]]:
    return [[turn(person, number, named) for number in range(TURNS)] for person in range(PEOPLE)]


PEOPLE_TALK = ClosedLoop("five people", sessions())
