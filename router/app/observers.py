"""Tells several observers what happened."""

from __future__ import annotations

from router.core.types import OutcomeKind, ReplicaId
from router.ports import Observer, RequestRecord


class Observers:
    """Tells several observers, in order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def request_finished(self, record: RequestRecord) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.request_finished(record)

    def attempt_failed(self, replica: ReplicaId, kind: OutcomeKind) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.attempt_failed(replica, kind)
