"""The fleet's models: what the engines say, merged, and answered from memory."""

from __future__ import annotations

from router.core.types import ReplicaId

Model = dict[str, object]


class ModelList:
    """`GET /v1/models` of the whole fleet."""

    def __init__(self) -> None:
        self._by_replica: dict[ReplicaId, list[Model]] = {}

    def update(self, replica: ReplicaId, models: list[Model]) -> frozenset[str]:
        """Take in one engine's list; return its model names."""
        self._by_replica[replica] = models
        return frozenset(str(model["id"]) for model in models)

    def forget(self, replica: ReplicaId) -> None:
        """Drop a replica that left the fleet."""
        self._by_replica.pop(replica, None)

    def merged(self) -> dict[str, object]:
        """Return all models in OpenAI's form, ordered by name, each as the first replica that serves it says."""
        found: dict[str, Model] = {}
        for models in self._by_replica.values():
            for model in models:
                found.setdefault(str(model["id"]), model)
        return {"object": "list", "data": [found[name] for name in sorted(found)]}
