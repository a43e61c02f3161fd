"""The header that tells a client, if it asks, what is predicted to become of its turn's history."""

from __future__ import annotations

from router.core.misses.types import TurnAccount

EXPLAIN = b"x-warmroute-explain"
"""With the value 1 in a request, and with the account in its answer."""


def explain_line(turn: TurnAccount | None) -> bytes:
    """Return the header line, a dictionary of RFC 8941; empty for a request that has no account."""
    if turn is None:
        return b""
    change = turn.change
    members = {
        "session": f'"{turn.session}"',
        "turn": turn.number,
        "cause": turn.cause,
        "history": turn.history_tokens,
        "matched": turn.cached_tokens,
        "lost": turn.lost_tokens,
        "idle": None if turn.idle_s is None else f"{turn.idle_s:.1f}",
        "change": None if change is None else change.cause,
        "message": None if change is None else change.message,
        "role": None if change is None else change.role,
    }
    said = ", ".join(f"{name}={value}" for name, value in members.items() if value is not None)
    return b"%b: %b\r\n" % (EXPLAIN, said.encode())
