"""Tells several observers what happened."""

from __future__ import annotations

from collections.abc import Sequence

from router.core.types import OutcomeKind, ReplicaId
from router.ports import Observer, RequestRecord


class Observers:
    """Tells several observers, one after the other."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def requests_finished(self, records: Sequence[RequestRecord]) -> None:
        """Tell each of all: what it needs for the first is at hand for the others."""
        for observer in self._observers:
            tell = observer.request_finished
            for record in records:
                tell(record)

    def attempt_failed(self, replica: ReplicaId, kind: OutcomeKind) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.attempt_failed(replica, kind)
