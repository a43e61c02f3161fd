"""The fleet's model list: what engines say, merged; aliases beside it."""

from __future__ import annotations

from router.app.roster.models import Model, ModelList


def model(name: str, **fields: object) -> Model:
    return {"id": name, "object": "model", "root": f"/models/{name}", "parent": None} | fields


def names(models: ModelList) -> list[object]:
    listed = models.merged()
    assert listed["object"] == "list"
    data = listed["data"]
    assert isinstance(data, list)
    return [entry["id"] for entry in data]


def test_models_of_all_replicas_are_merged_by_name() -> None:
    models = ModelList()
    assert models.update("r-1", [model("b"), model("a", max_model_len=8)]) == {"a", "b"}
    models.update("r-2", [model("a", max_model_len=16), model("c")])
    assert names(models) == ["a", "b", "c"]
    data = models.merged()["data"]
    assert isinstance(data, list)
    assert data[0] == model("a", max_model_len=8), "as the first replica says it, all of it"


def test_a_replica_that_left_takes_along_what_it_alone_served() -> None:
    models = ModelList()
    models.update("r-1", [model("a")])
    models.update("r-2", [model("a"), model("b")])
    models.forget("r-2")
    assert names(models) == ["a"]


def test_an_alias_is_its_models_entry_under_another_id() -> None:
    models = ModelList({"gpt-4o": "a"})
    models.update("r-1", [model("a", max_model_len=8)])
    data = models.merged()["data"]
    assert isinstance(data, list)
    assert data == [model("a", max_model_len=8), model("a", max_model_len=8) | {"id": "gpt-4o"}]
    assert data[1]["root"] == "/models/a"


def test_an_alias_is_listed_only_while_its_model_is() -> None:
    models = ModelList({"gpt-4o": "a"})
    assert names(models) == []
    models.update("r-1", [model("a")])
    assert names(models) == ["a", "gpt-4o"]
    models.update("r-1", [model("b")])
    assert names(models) == ["b"]


def test_a_model_hides_an_alias_of_the_same_name() -> None:
    models = ModelList({"b": "a"})
    models.update("r-1", [model("a"), model("b", max_model_len=8)])
    data = models.merged()["data"]
    assert data == [model("a"), model("b", max_model_len=8)]


def test_aliases_may_be_replaced_while_it_runs() -> None:
    models = ModelList({"old": "a"})
    models.update("r-1", [model("a")])
    models.aliases = {"new": "a"}
    assert names(models) == ["a", "new"]


def test_an_adapter_has_a_parent_while_an_engine_lists_it() -> None:
    models = ModelList()
    models.update("r-1", [model("base", parent=None), model("adapter", parent="base")])
    assert (models.parent_of("adapter"), models.parent_of("base"), models.parent_of("other")) == ("base", None, None)
    models.forget("r-1")
    assert models.parent_of("adapter") is None
