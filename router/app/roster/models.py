"""The fleet's models: what the engines say, merged, and answered from memory."""

from __future__ import annotations

from collections.abc import Mapping

from router.core.types import ReplicaId

Model = dict[str, object]


class ModelList:
    """`GET /v1/models` of the whole fleet."""

    def __init__(self, aliases: Mapping[str, str] | None = None) -> None:
        self.aliases: Mapping[str, str] = aliases or {}
        """Other names of models, by name. May be replaced at any time."""
        self._by_replica: dict[ReplicaId, list[Model]] = {}
        self._parents: dict[str, str] = {}

    def update(self, replica: ReplicaId, models: list[Model]) -> frozenset[str]:
        """Take in one engine's list; return its model names."""
        self._by_replica[replica] = models
        self._list_parents()
        return frozenset(str(model["id"]) for model in models)

    def forget(self, replica: ReplicaId) -> None:
        """Drop a replica that left the fleet."""
        self._by_replica.pop(replica, None)
        self._list_parents()

    def parent_of(self, name: str) -> str | None:
        """Return the base model of an adapter (LoRA); None for a base model, and for what no engine lists."""
        return self._parents.get(name)

    def _list_parents(self) -> None:
        listed = (model for models in self._by_replica.values() for model in models)
        self._parents = {str(model["id"]): str(model["parent"]) for model in listed if model.get("parent")}

    def merged(self) -> dict[str, object]:
        """Return all models in OpenAI's form, ordered by name, each as the first replica that serves it says.

        An alias is listed while its model is: the model's own entry under another id, as vLLM lists further names that
        it is told to serve a model under. A model of the same name hides it.
        """
        found: dict[str, Model] = {}
        for models in self._by_replica.values():
            for model in models:
                found.setdefault(str(model["id"]), model)
        aliased = {alias: found[name] | {"id": alias} for alias, name in self.aliases.items() if name in found}
        listed = aliased | found
        return {"object": "list", "data": [listed[name] for name in sorted(listed)]}
