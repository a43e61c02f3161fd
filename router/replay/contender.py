"""What a replay drives: something that is told what a router is told, and says where requests go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from router.core.types import EngineReport
from router.replay.demand import Job
from router.sim.types import Finished


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One request on its way to the router. A refused one that comes again is another call."""

    number: int
    """Grows from call to call."""
    job: Job
    """A contender looks at `request` and `session` only; what engines compute is for oracles."""
    tenant: int = 0


class Send(NamedTuple):
    """Send it to a replica, by its number in the fleet."""

    replica: int
    reason: str = ""
    predicted_tokens: int = 0
    """Of the prompt, believed to be cached there."""


class Hold(NamedTuple):
    """Let it wait in the router."""

    predicted_s: float = 0.0


class Refuse(NamedTuple):
    """Send the client away."""

    wait_s: float
    """Retry-After."""
    final: bool = False
    """It has waited already: its client does not come again."""


Late = tuple[Call, Send | Refuse]
"""What becomes of a call that was held."""


class Contender(Protocol):
    """A router's decisions. Times in seconds of the simulation, never going back; replicas by number, from 0."""

    def arrived(self, call: Call, now: float) -> Send | Hold | Refuse:
        """A request came."""

    def first_byte(self, call: Call, now: float) -> Iterable[Late]:
        """The first token of a request that was sent came back."""

    def ended(self, call: Call, finished: Finished, now: float) -> Iterable[Late]:
        """The whole answer came back."""

    def observed(self, replica: int, report: EngineReport, now: float) -> None:
        """A replica's metrics were read."""

    def tick(self, now: float) -> Iterable[Late]:
        """Time has passed while calls are held."""

    @property
    def figures(self) -> Mapping[str, float]:
        """Figures of its own, by name, at the end."""
