"""How well a prefill's seconds are foretold: what the core learns against a decayed rate, on a simulated engine.

usage: costs.py [--minutes 10] [--per-s 1] [--seed 1]

One simulated engine gets prompts at random moments, of lengths as in the chat workload and longer ones, and decodes the
answers beside, which slows prefills down. Each prefill is foretold, timed as the router times it, from its dispatch or
its predecessor's first byte, and then learnt. Errors are |foretold / took - 1|, of the second half. With attention, the
times of the engine, which knows none, are multiplied by what an 8B model takes for it.
"""

from __future__ import annotations

import argparse
from random import Random
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from router.core.costs import PrefillCost
from router.sim.engine import Engine, EngineConfig, SimRequest, Tokens

PAIR_TOKEN_RATIO = 3.3e-5  # seconds of a pair to those of a token: 4 x 4,096 x 32 operations to 16 billion


KEEP_RATIO = 0.95  # of the decayed rate, at each prefill
MIN_SAMPLE_TOKENS = 256  # shorter ones say nothing of a rate


class DecayedRate:
    """Tokens over seconds, of about the last 20 prefills: what the simplest estimate does."""

    def __init__(self, tokens_per_s: float) -> None:
        self.tokens, self.seconds = tokens_per_s, 1.0

    def seconds_of(self, uncached: int) -> float:
        return uncached * self.seconds / self.tokens

    def observe(self, uncached: int, took_s: float) -> None:
        if uncached >= MIN_SAMPLE_TOKENS:
            self.tokens = self.tokens * KEEP_RATIO + uncached
            self.seconds = self.seconds * KEEP_RATIO + took_s


class Prefill(NamedTuple):
    uncached: int
    cached: int
    took_s: float


def prefills(minutes: float, per_s: float, seed: int) -> list[Prefill]:
    chance, engine = Random(seed), Engine(EngineConfig())
    sent: dict[str, float] = {}
    prompts: dict[str, int] = {}
    seen: list[Prefill] = []
    now, last_s = 0.0, 0.0
    while now < minutes * 60:
        now += chance.expovariate(per_s)
        for event in engine.advance(now):
            if isinstance(event, Tokens) and event.first:
                begun_s = max(sent[event.request_id], last_s)
                uncached = prompts[event.request_id] - event.cached_tokens
                seen.append(Prefill(uncached, event.cached_tokens, event.at_s - begun_s))
                last_s = event.at_s
        name = str(len(sent))
        # A third of the prompts go on from one of 50 histories, which the cache holds or holds a part of.
        shared = chance.choice((0, 0, chance.randrange(1, 51)))
        history = [shared * 1_000_000 + at for at in range(600 * shared)]
        own = int(min(20_000, chance.lognormvariate(7.0, 1.0)))
        tokens = [*history, *(chance.getrandbits(40) for _ in range(own))]
        sent[name], prompts[name] = now, len(tokens)
        output = int(min(1_500, 8 + chance.lognormvariate(5.4, 0.8)))
        engine.submit(SimRequest(name, tokens, range(output)), now)
    return seen


def errors(seen: list[Prefill], pair_ratio: float) -> tuple[list[float], list[float]]:
    """Errors of the decayed rate and of the learnt costs, in order of size."""
    rate, cost = DecayedRate(8_000.0), PrefillCost(8_000.0)
    by_rate, by_cost = [], []
    for number, (uncached, cached, engine_s) in enumerate(seen):
        took_s = engine_s * (1 + pair_ratio * (cached + uncached / 2))
        if number > len(seen) / 2:
            by_rate.append(abs(rate.seconds_of(uncached) / took_s - 1))
            by_cost.append(abs(cost.seconds(uncached, cached) / took_s - 1))
        rate.observe(uncached, took_s)
        cost.observe(uncached, cached, took_s)
    return sorted(by_rate), sorted(by_cost)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--per-s", type=float, default=1.0, help="prompts a second")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    seen = prefills(options.minutes, options.per_s, options.seed)
    table = Table("engine", "estimate", "prefills", "mean error", "p50", "p95")
    for name, pair_ratio in (("as simulated", 0.0), ("with attention", PAIR_TOKEN_RATIO)):
        for estimate, sizes in zip(("decayed rate", "learnt costs"), errors(seen, pair_ratio), strict=True):
            cells = (sum(sizes) / len(sizes), sizes[len(sizes) // 2], sizes[int(len(sizes) * 0.95)])
            table.add_row(name, estimate, str(len(sizes)), *(f"{cell:.3f}" for cell in cells))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
