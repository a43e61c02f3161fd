"""Which session a request goes on with, and how likely its turn is to be followed by another one."""

from __future__ import annotations

from router.core.curves import ReturnClass
from router.core.ticket import Ticket
from router.core.tokens import TurnEnds
from router.core.types import Prompt, Usage

LOOKED_BACK_BLOCKS = 64
"""Of a prompt that does not say where its turns end, so many last blocks may be the end of the turn before: 8,000
tokens of a new message."""


def goes_on_from(prompt: Prompt, turns: TurnEnds) -> int | None:
    """Return the last block of the turn that a prompt goes on from, whether it is resident or not; None: of none."""
    answers, hashes = prompt.answers_at, prompt.hashes
    if answers:
        return hashes[answers[-1] - 1] if answers[-1] else None
    if prompt.open_text is not None:
        blocks = turns.deepest(prompt, len(hashes)).blocks
        return hashes[blocks - 1] if blocks else None
    recent = hashes[-LOOKED_BACK_BLOCKS:]
    blocks = turns.last_known(recent)
    return recent[blocks - 1] if blocks else None


def class_of(ticket: Ticket, usage: Usage) -> ReturnClass:
    """Return the class of the turn that ended: what it is learnt by whether it is followed by another one."""
    prompt = ticket.request.prompt
    turn = 1 if prompt is None else len(prompt.answers_at) + 1
    return ReturnClass.of(usage.finish_reason, turn, prompt is not None and prompt.from_tool)
