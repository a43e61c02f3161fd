"""What every reader of recorded traffic yields."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from router.sim.types import SimRequest

Positive = Annotated[int, Meta(ge=1)]
NonNegative = Annotated[int, Meta(ge=0)]
NonNegativeSeconds = Annotated[float, Meta(ge=0)]
Runs = tuple[tuple[int, int], ...]
"""Block identities as runs of consecutive ones: first, count."""


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One recorded request: sizes and block identities, no text."""

    session_id: str
    """Empty where the trace names no sessions."""
    arrives_s: float
    """Seconds since the start of the trace, or of its session."""
    think_s: float | None
    """Seconds after the session's last answer; None where the trace only has arrival times."""
    prompt_tokens: int
    output_tokens: int
    finish_reason: str
    block_tokens: int
    block_runs: Runs
    """The prompt's full blocks, and where known those that the answer fills, as runs of consecutive identities."""
    prompt_hashes: tuple[int, ...] = ()
    """The prompt's blocks as the router hashed them; empty: `block_hashes` stand for them."""
    prompt_ends_tokens: tuple[int, ...] = ()
    """Tokens from the start of the prompt to the end of each of `prompt_hashes`."""

    @property
    def block_hashes(self) -> list[int]:
        """One identity per full block; equal ones mean equal prompts up to there."""
        return [first + index for first, count in self.block_runs for index in range(count)]

    def sim_request(self, request_id: str, salt: int = 0) -> SimRequest:
        """Return it as the engine takes it. The engine's `block_tokens` must be this trace's."""
        request = SimRequest.from_block_hashes(
            request_id, self.block_hashes, self.prompt_tokens, self.output_tokens, salt
        )
        request.finish_reason = self.finish_reason
        return request


def runs_of(identities: Iterable[int]) -> Runs:
    """Return identities as runs: traces number new blocks in turn, so most of a prompt is one run."""
    runs: list[tuple[int, int]] = []
    for identity in identities:
        if runs and identity == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((identity, 1))
    return tuple(runs)
