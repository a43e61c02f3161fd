"""Tiny worlds: prompts made of short messages, and a fleet that is stepped by hand."""

from __future__ import annotations

from router.core.fleet import Fleet
from router.core.policy import Policy
from router.core.price import affinity
from router.core.prompt import PromptBuilder, scope_hash, session_hash
from router.core.ticket import Ticket
from router.core.types import EngineReport, Outcome, OutcomeKind, Prompt, RoutingRequest, Usage

SCOPE = scope_hash("m", "")
BLOCK = b"x" * 511
"""With a role marker of one byte and its separator less one, a message of this text is just over one block."""


def prompt(*messages: tuple[str, str], scope: int = SCOPE) -> Prompt:
    builder = PromptBuilder(scope)
    for role, text in messages:
        builder.add(role.encode(), text.encode())
    built = builder.build()
    assert built is not None
    return built


def chat(*messages: tuple[str, str], session: str | None = None, model: str = "m") -> RoutingRequest:
    scope = scope_hash(model, "")
    hint = None if session is None else session_hash(scope, session)
    built = prompt(*messages, scope=scope)
    return RoutingRequest(model, "chat", built, 1000, True, hint, session is not None)


def fleet_of(count: int, policy: Policy = affinity, index_bytes: int = 64 << 20, kv_tokens: int = 100_000) -> Fleet:
    fleet = Fleet(policy, index_bytes)
    for number in range(count):
        fleet.add(f"r{number}")
        fleet.observe_engine(f"r{number}", EngineReport(kv_tokens=kv_tokens, block_tokens=16, start_time_s=1.0))
    return fleet


def answered(
    fleet: Fleet, request: RoutingRequest, now: float, cached: int | None = None, answer_tokens: int = 100
) -> Ticket:
    """Route a request and finish it at once, as an engine that reports its usage would."""
    ticket = fleet.route(request, now)
    fleet.first_byte(ticket, now + 0.05)
    tokens = 0 if request.prompt is None else round(request.prompt.ends_bytes[-1] / 4)
    reported = ticket.decision.matched_tokens if cached is None else cached
    usage = Usage(tokens, reported, answer_tokens, "stop")
    fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200, usage), now + 0.1)
    return ticket
