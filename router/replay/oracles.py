"""Contenders that know what no router can: how much a policy loses by not knowing, and how much by its placement."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace

from router.core.leases import Lease
from router.core.residency import Mirror
from router.core.types import EngineReport, Prompt
from router.replay.contender import Call, Hold, Late, Refuse, Send
from router.replay.demand import Job
from router.replay.plan import Plan
from router.replay.rivals.plain import Turns
from router.replay.rivals.rival import Load, Pick, Rival
from router.replay.warmroute import Warmroute
from router.sim.blocks import BlockPool
from router.sim.engine import Engine
from router.sim.types import Finished

POOLED = "oracle-pooled"
"""One cache for all engines, as large as all together; each request goes where least is to be computed."""

CONTENT = "oracle-content"
"""`affinity`, told what engines hold where it would believe something."""

NAMES = [POOLED, CONTENT]


def cached_blocks(pool: BlockPool, hashes: Sequence[int]) -> int:
    """Return how many leading blocks an engine holds. What it holds of a prompt is a prefix, tail first evicted."""
    low, high = 0, len(hashes)
    while low < high:
        middle = (low + high + 1) >> 1
        if pool.longest_hit(hashes[middle - 1 : middle], 1):
            low = middle
        else:
            high = middle - 1
    return low


def cached_tokens(engine: Engine, job: Job) -> int:
    """Return the tokens of a prompt that an engine would report as cached if it began now."""
    block_tokens = engine.config.block_tokens
    reusable = (job.simulated.block_hashes or ())[: (job.prompt_tokens - 1) // block_tokens]
    return cached_blocks(engine.pool, reusable) * block_tokens


class LeastQueue:
    """With one cache for all it is the same everywhere what a prompt costs, so only the queue counts."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self._engines, self._turns = engines, Turns(len(engines))

    def pick(self, job: Job, loads: Sequence[Load], now: float) -> Pick:
        """Take the replica that has least to compute."""
        costs = [load.pending_tokens / engine.config.prefill_tokens_per_s
                 for load, engine in zip(loads, self._engines, strict=True)]  # fmt: skip
        best = self._turns.best(costs)
        return Pick(best, cached_tokens(self._engines[best], job))


class TrueMirror(Mirror):
    """What an engine holds, in the place of what it is believed to hold."""

    def __init__(self, engine: Engine, asked: Mapping[int, list[Job]]) -> None:
        """`asked`: jobs under way, by the last block of their prompts."""
        super().__init__()
        self._engine, self._asked = engine, asked

    def match(self, hashes: list[int], guess: int = 0) -> int:
        """Ask the engine. Prompts that nobody asks for now are unknown."""
        jobs = self._asked.get(hashes[-1])
        if not jobs or jobs[-1].request.prompt is None:
            return 0
        held_bytes = cached_tokens(self._engine, jobs[-1]) * jobs[-1].bytes_per_token
        return bisect_right(jobs[-1].request.prompt.ends_bytes, held_bytes)

    def acquire(self, prompt: Prompt, matched: int) -> Lease:
        """Hold nothing: the engine does."""
        return Lease(prompt.hashes, prompt.ends_bytes, matched, -1, self.epoch)

    def release(self, lease: Lease, now: float, computed: bool = True, answer_bytes: int = 0, kind: int = 0) -> None:
        """Nothing is held."""


class Content:
    """Warmroute whose mirrors are true."""

    def __init__(self, plan: Plan, engines: Sequence[Engine]) -> None:
        self._warmroute = Warmroute(replace(plan, policy="affinity"))
        self._asked: dict[int, list[Job]] = {}
        for engine, replica in zip(engines, list(self._warmroute.fleet), strict=True):
            replica.mirror = TrueMirror(engine, self._asked)

    def arrived(self, call: Call, now: float) -> Send | Hold | Refuse:
        """Make the prompt known to the mirrors, and route it."""
        prompt = call.job.request.prompt
        if prompt is not None:
            self._asked.setdefault(prompt.hashes[-1], []).append(call.job)
        verdict = self._warmroute.arrived(call, now)
        if isinstance(verdict, Refuse):
            self._forget(call.job)
        return verdict

    def first_byte(self, call: Call, now: float) -> Sequence[Late]:
        """As Warmroute."""
        return self._warmroute.first_byte(call, now)

    def ended(self, call: Call, finished: Finished, now: float) -> Sequence[Late]:
        """As Warmroute."""
        self._forget(call.job)
        return self._warmroute.ended(call, finished, now)

    def observed(self, replica: int, report: EngineReport, now: float) -> None:
        """As Warmroute."""
        self._warmroute.observed(replica, report, now)

    def tick(self, now: float) -> Sequence[Late]:
        """As Warmroute."""
        late = self._warmroute.tick(now)
        for call, verdict in late:
            if isinstance(verdict, Refuse):
                self._forget(call.job)
        return late

    def _forget(self, job: Job) -> None:
        prompt = job.request.prompt
        if prompt is not None:
            jobs = self._asked[prompt.hashes[-1]]
            jobs.pop()
            if not jobs:
                del self._asked[prompt.hashes[-1]]

    @property
    def figures(self) -> Mapping[str, float]:
        """Warmroute's."""
        return self._warmroute.figures


def oracle(plan: Plan, engines: Sequence[Engine]) -> Rival | Content:
    """Return the oracle that a plan names; for the pooled one the engines share a pool already."""
    if plan.policy == POOLED:
        return Rival(plan.replicas, LeastQueue(engines))
    return Content(plan, engines)
