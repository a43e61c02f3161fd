"""The decision that the picture shows: turn 4 of a chat whose replica is busy with somebody else.

The router's core decides; time and engines are played by the numbers below, so that every run gives the same picture.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from router.core.fleet import Fleet
from router.core.policies import POLICIES
from router.core.ticket import Ticket
from router.core.types import EngineReport, Outcome, OutcomeKind, RoutingRequest, Usage
from router.proxy.openai import read_request
from router.sim.workload import ChatTurn, ChatWorkload

REPLICAS = 4
CHATS = 9
"""They have three turns each, spread over the fleet; the first of them is the one shown."""
NEWCOMERS = 4
"""Chats whose first prompts are being computed while turn 4 arrives: every replica but one is busy."""
SEED = 3
"""Of the chats' texts. With this one the chat's own replica is busy too, and another is idle."""
ENOUGH_S = 30.0
"""Of arriving chats, one a second: more than there are parts to play."""
PAUSE_S = 2.0
PREFILL_S = 0.2
ANSWER_TOKENS = 200
ANSWER_S = 4.0
ENGINE = EngineReport(kv_tokens=300_000, block_tokens=16, start_time_s=1.0)


@dataclass(frozen=True, slots=True)
class Offer:
    """What one replica offers for the turn: prompt tokens it holds, and seconds until it could answer."""

    replica: str
    held_tokens: int
    queue_s: float
    compute_s: float


@dataclass(frozen=True, slots=True)
class Scene:
    """The turn, its prompt, the replica it was sent to, and what each one offered."""

    turn: int
    prompt_tokens: int
    chosen: str
    offers: list[Offer]


def play() -> Scene:
    """Let three turns of some chats pass, make the fleet busy, and ask where turn 4 of the first one would go."""
    fleet = Fleet(POLICIES["affinity"])
    for number in range(1, REPLICAS + 1):
        fleet.add(f"replica {number}")
        fleet.observe_engine(f"replica {number}", ENGINE)
    chats = list(ChatWorkload(1.0, ENOUGH_S, seed=SEED).sessions())
    now = 0.0
    for answer in (None, *[" ".join(["yes"] * ANSWER_TOKENS)] * 2):
        for chat in chats[:CHATS]:
            turn = chat.next_turn(answer)
            if turn is not None:
                now += PAUSE_S
                _answer(fleet, fleet.route(_request(turn), now), now)
    for chat in chats[CHATS : CHATS + NEWCOMERS]:
        turn = chat.next_turn()
        assert turn is not None
        fleet.route(_request(turn), now)
    turn = chats[0].next_turn(answer)
    assert turn is not None
    decision = fleet.explain(_request(turn), now)
    offers = [Offer(score.replica, score.matched_tokens, score.queue_s, score.own_s) for score in decision.scores]
    return Scene(turn.number, decision.prompt_tokens, decision.replica, offers)


def _request(turn: ChatTurn) -> RoutingRequest:
    return read_request("/v1/chat/completions", json.dumps({"model": "m", "messages": turn.messages}).encode(), None)


def _answer(fleet: Fleet, ticket: Ticket, now: float) -> None:
    fleet.first_byte(ticket, now + PREFILL_S)
    usage = Usage(ticket.decision.prompt_tokens, ticket.decision.matched_tokens, ANSWER_TOKENS, "stop")
    fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200, usage), now + ANSWER_S)
