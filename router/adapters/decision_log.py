"""The last decisions, kept in memory for the admin API."""

from __future__ import annotations

from collections import deque

from router.core.types import OutcomeKind, ReplicaId
from router.ports import RequestRecord

KEPT = 1_000
"""Some minutes of a busy fleet: enough to see why, small enough (a few MB at 32 replicas) to forget about."""


class DecisionLog:
    """An observer that keeps the last `KEPT` records that had a decision."""

    def __init__(self) -> None:
        self._records: deque[RequestRecord] = deque(maxlen=KEPT)

    def request_finished(self, record: RequestRecord) -> None:
        """Keep a finished request."""
        if record.decision is not None:
            self._records.append(record)

    def attempt_failed(self, replica: ReplicaId, kind: OutcomeKind) -> None:
        """Failed attempts are not decisions."""

    def latest(self, limit: int = KEPT) -> list[RequestRecord]:
        """Return up to `limit` records, newest first."""
        return [record for record, _ in zip(reversed(self._records), range(limit), strict=False)]
