"""Where a request's time went."""

from __future__ import annotations

from typing import NamedTuple


class Phases(NamedTuple):
    """The parts of a request's time after it was decided and had waited; seconds."""

    retried_s: float = 0.0
    connect_s: float = 0.0
    prefill_s: float | None = None
    decode_s: float | None = None


def phases(begun_s: float, dispatched_s: float, sent_s: float | None, first_byte_s: float | None, now: float) -> Phases:
    """Split the time from `begun_s`, when the first attempt was to begin, to `now`, the end.

    `dispatched_s`: when the last attempt began. `sent_s`: when its request went out on a connection; None if it had
    none. What the router's own calls take between two of these moments goes to the phase before.
    """
    dispatched_s = max(begun_s, dispatched_s)
    connected_s = max(dispatched_s, now if sent_s is None else sent_s)
    retried_s, connect_s = dispatched_s - begun_s, connected_s - dispatched_s
    if first_byte_s is None:
        return Phases(retried_s, connect_s)
    return Phases(retried_s, connect_s, max(0.0, first_byte_s - connected_s), now - first_byte_s)
