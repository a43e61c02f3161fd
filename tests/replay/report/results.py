"""Runs with known answers, to take figures from."""

from router.replay.plan import Answered, Plan, Result
from router.sim.types import EngineConfig


def answered(
    arrived_s: float, ttft_s: float, prompt: int, cached: int, replica: int, answer_s: float = 1.0
) -> Answered:
    first_s = arrived_s + ttft_s
    return Answered(
        arrived_s=arrived_s,
        first_s=first_s,
        ended_s=first_s + answer_s,
        prompt_tokens=prompt,
        cached_tokens=cached,
        predicted_tokens=cached,
        output_tokens=10,
        replica=replica,
        reason="warm",
    )


def plan(policy: str, replicas: int = 2, kv_tokens: int = 1_000, warm_up_minutes: float = 0.0) -> Plan:
    return Plan(policy, EngineConfig(kv_tokens=kv_tokens), replicas, minutes=1.0, warm_up_minutes=warm_up_minutes)


def result(policy: str, slower: float = 1.0, **options) -> Result:
    """Four requests of 100 tokens over two replicas, half of which are cached; one more was refused."""
    requests = [
        answered(0.0, 0.1 * slower, 100, 0, 0),
        answered(10.0, 0.2 * slower, 100, 80, 0),
        answered(20.0, 0.3 * slower, 100, 60, 1),
        answered(30.0, 0.4 * slower, 100, 60, 1, answer_s=2.0),
    ]
    found = Result(plan(policy, **options), requests, refused=1)
    found.ceiling_ratio, found.pooled_ratio = 0.8, 0.625
    return found
