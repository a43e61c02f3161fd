"""A router that sends each request at once: what it counts by itself, and the gauges that it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from router.core.types import EngineReport
from router.replay.contender import Call, Late, Send
from router.replay.demand import Job
from router.sim.types import Finished


@dataclass(slots=True)
class Load:
    """One replica as its router sees it."""

    requests: int = 0
    """In flight."""
    pending: int = 0
    """Of them, without a first token yet."""
    pending_tokens: int = 0
    """Prompt tokens of those that the router believes must be computed."""
    context_tokens: int = 0
    """Prompt tokens of all in flight."""
    report: EngineReport = field(default_factory=EngineReport)
    """The last reading of its metrics."""


class Pick(NamedTuple):
    """Where a request goes, and how many of its tokens are believed to be cached there."""

    replica: int
    matched_tokens: int = 0


class Picker(Protocol):
    """A policy."""

    def pick(self, job: Job, loads: Sequence[Load], now: float) -> Pick:
        """Choose a replica and remember that. Of `job` only the prompt's blocks, its length and its session count."""


class Rival:
    """A contender that holds and refuses nothing."""

    def __init__(self, replicas: int, picker: Picker) -> None:
        self.loads = [Load() for _ in range(replicas)]
        self._picker = picker
        self._sent: dict[int, tuple[Load, int]] = {}

    def arrived(self, call: Call, now: float) -> Send:
        """Send it to where the policy says."""
        picked = self._picker.pick(call.job, self.loads, now)
        load, uncached_tokens = self.loads[picked.replica], call.job.prompt_tokens - picked.matched_tokens
        load.requests += 1
        load.pending += 1
        load.pending_tokens += uncached_tokens
        load.context_tokens += call.job.prompt_tokens
        self._sent[call.number] = load, uncached_tokens
        return Send(picked.replica, "", picked.matched_tokens)

    def first_byte(self, call: Call, now: float) -> Sequence[Late]:
        """Its prefill is over."""
        load, uncached_tokens = self._sent[call.number]
        load.pending -= 1
        load.pending_tokens -= uncached_tokens
        return ()

    def ended(self, call: Call, finished: Finished, now: float) -> Sequence[Late]:
        """Count it out."""
        load, _ = self._sent.pop(call.number)
        load.requests -= 1
        load.context_tokens -= call.job.prompt_tokens
        return ()

    def observed(self, replica: int, report: EngineReport, now: float) -> None:
        """Keep the reading."""
        self.loads[replica].report = report

    def tick(self, now: float) -> Sequence[Late]:
        """Nothing is held."""
        return ()

    @property
    def figures(self) -> Mapping[str, float]:
        """None."""
        return {}
