"""Several models in one fleet: told apart, listed, called by other names, and refused where there are none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from tests.proxy.test_model_field import FILE, form
from tests.rig.client import CHAT, Answer, chat, request
from tests.rig.forms import FORMS, Form
from tests.rig.running import Router
from tests.rig.stage import Stage

STORY = "a story of the harbour, " * 200


async def two_models(stage: Stage, **settings: Any) -> tuple[Router, SimReplica, SimReplica]:
    """A fleet with a replica of each of two models, both known."""
    one, other = await stage.replica(models=("one",)), await stage.replica(models=("other",))
    router = await stage.router(one, other, watched=True, **settings)
    await router.until(lambda: all(replica.models for replica in router.house.fleet))
    return router, one, other


def not_found(form: Form, answer: Answer) -> str:
    """Check that an answer says that there is no such model, in its API's form; return its message."""
    assert answer.status == 404
    error = answer.json()["error"]
    if form.path == "/v1/messages":
        assert (answer.json()["type"], error["type"]) == ("error", "not_found_error")
    else:
        assert (answer.error["type"], error["code"], error["param"]) == (
            "invalid_request_error", "model_not_found", "model"
        )  # fmt: skip
    return str(error["message"])


def inference(replica: SimReplica) -> list[bytes]:
    """The bodies of what clients sent to a replica."""
    return [arrival.body for arrival in replica.requests if arrival.method == "POST"]


# Told apart


async def test_each_model_goes_to_who_serves_it(stage: Stage) -> None:
    router, one, other = await two_models(stage)
    client = await stage.client(router)
    for _ in range(3):
        assert (await client.ask(chat(STORY, model="one"))).replica == router.id_of(one)
        assert (await client.ask(chat(STORY, model="other"))).replica == router.id_of(other)


async def test_a_model_on_several_replicas_takes_turns_whatever_another_one_does(stage: Stage) -> None:
    both = await stage.replicas(2, models=("one", "other"))
    router = await stage.router(*both, watched=True, policy="round-robin")
    client = await stage.client(router)
    went: dict[str, list[str | None]] = {"one": [], "other": []}
    for name in ["one", "other"] * 4:
        went[name].append((await client.ask(chat(model=name))).replica)
    for replicas in went.values():
        assert replicas[:2] * 2 == replicas
        assert replicas[0] != replicas[1]


async def test_a_form_goes_to_who_serves_its_model(stage: Stage) -> None:
    router, one, other = await two_models(stage, alias=("whisper=other",))
    kind = [("content-type", "multipart/form-data; boundary=X7f")]
    for name, replica in (("one", one), ("other", other), ("whisper", other)):
        for parts in (
            [("name=model", name.encode()), (FILE, b"\0" * 300_000)],
            [(FILE, b"a"), ("name=model", name.encode())],
        ):
            answer = await stage.ask(router, request("/v1/audio/transcriptions", form(*parts), headers=kind))
            assert answer.replica == router.id_of(replica)
    assert form(("name=model", b"other"), (FILE, b"\0" * 300_000)) in inference(other), "the alias is written anew"
    answer = await stage.ask(router, request("/v1/audio/transcriptions", form(("name=model", b"x")), headers=kind))
    assert answer.status == 404


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/score", "/tokenize", "/pooling"])
async def test_other_paths_are_told_apart_too(stage: Stage, path: str) -> None:
    router, _, other = await two_models(stage)
    for _ in range(3):
        answer = await stage.ask(router, request(path, {"model": "other", "input": "x", "prompt": "x"}))
        assert answer.replica == router.id_of(other)


async def test_a_request_without_a_model_goes_to_anybody(stage: Stage) -> None:
    router, *_ = await two_models(stage)
    assert (await stage.ask(router, request(CHAT, {"messages": [], "max_tokens": 1}))).replica is not None


async def test_the_same_words_for_two_models_are_two_prompts(stage: Stage) -> None:
    replica = await stage.replica(models=("one", "other"))
    router = await stage.router(replica, watched=True)
    assert (await stage.ask(router, chat(STORY, model="one"))).reason == "new"
    assert (await stage.ask(router, chat(STORY, model="other"))).reason == "new"
    assert (await stage.ask(router, chat(STORY, model="one"))).reason == "warm"


async def test_requests_are_counted_by_model(stage: Stage) -> None:
    router, *_ = await two_models(stage)
    for name in ("one", "one", "other"):
        await stage.ask(router, chat(model=name))
    await router.idle()
    assert [record.model for record in router.records.finished] == ["one", "one", "other"]


# Unknown models


@pytest.mark.parametrize("form_", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_unknown_model_is_refused_with_the_list(stage: Stage, form_: Form, stream: bool) -> None:
    router, one, other = await two_models(stage)
    answer = await stage.ask(router, form_.request(model="onne", stream=stream))
    message = not_found(form_, answer)
    assert "`onne`" in message
    assert "one, other" in message
    assert not inference(one) + inference(other)
    record = router.records.finished[-1]
    assert (record.status, record.error, record.model, record.decision) == (404, "model_not_found", "onne", None)


async def test_a_long_name_is_not_repeated_at_length(stage: Stage) -> None:
    router, *_ = await two_models(stage)
    assert len((await stage.ask(router, chat(model="x" * 100_000))).body) < 1_000


async def test_many_models_are_counted_and_not_listed(stage: Stage) -> None:
    replica = await stage.replica(models=tuple(f"m{number:03}" for number in range(50)))
    router = await stage.router(replica, watched=True)
    await router.until(lambda: bool(router.books(replica).models))
    message = not_found(FORMS["chat"], await stage.ask(router, chat(model="x")))
    assert "m019 and 30 more" in message


async def test_where_it_is_forwarded_an_engine_says_so_itself(stage: Stage) -> None:
    router, one, other = await two_models(stage, unknown_model="forward")
    answer = await stage.ask(router, chat(model="onne"))
    assert answer.status == 404
    assert answer.replica in {router.id_of(one), router.id_of(other)}
    assert answer.json()["error"]["type"] == "NotFoundError", "the engine's words"
    assert answer.reason != "last-resort", "nothing is the matter with the engine"


async def test_a_forwarded_one_is_not_sent_to_who_is_out(stage: Stage) -> None:
    router, one, other = await two_models(stage, unknown_model="forward")
    router.books(one).health.drain(router.house.plane.clock())
    for _ in range(4):
        assert (await stage.ask(router, chat(model="onne"))).replica == router.id_of(other)


async def test_before_engines_have_said_what_they_serve_any_may_be_asked(stage: Stage) -> None:
    replica = await stage.replica(models=("one",))
    router = await stage.router(replica)
    answer = await stage.ask(router, chat(model="who-knows"))
    assert (answer.status, answer.replica) == (404, router.id_of(replica))


async def test_a_model_whose_replicas_are_all_out_exists_all_the_same(stage: Stage) -> None:
    router, one, _ = await two_models(stage)
    router.books(one).health.drain(router.house.plane.clock())
    answer = await stage.ask(router, chat(model="one"))
    assert (answer.status, answer.replica, answer.reason) == (200, router.id_of(one), "last-resort")


# Adapters


async def test_an_adapter_that_is_loaded_later_is_listed_and_routed(stage: Stage) -> None:
    replicas = await stage.replicas(2)
    router = await stage.router(*replicas, watched=True, models_interval_s=0.5)
    await router.until(lambda: all(replica.models for replica in router.house.fleet))
    not_found(FORMS["chat"], await stage.ask(router, chat(model="my-adapter")))
    replicas[1].state.adapters.append("my-adapter")
    await router.until(lambda: "my-adapter" in router.books(replicas[1]).models)
    listed = (await stage.ask(router, request("/v1/models"))).json()["data"]
    assert [model["id"] for model in listed] == ["my-adapter", "sim-model"]
    assert listed[0]["parent"] == "sim-model"
    for _ in range(3):
        answer = await stage.ask(router, chat(model="my-adapter"))
        assert (answer.status, answer.replica) == (200, router.id_of(replicas[1]))
    replicas[1].state.adapters.clear()
    await router.until(lambda: "my-adapter" not in router.books(replicas[1]).models)
    not_found(FORMS["chat"], await stage.ask(router, chat(model="my-adapter")))


# Aliases


async def test_an_alias_changes_the_name_and_no_other_byte(stage: Stage) -> None:
    router, one, _ = await two_models(stage, alias=("gpt-4o=one", "small=one"))
    messages = b'"messages":[{"role":"user","content":"model: gpt-4o \\u00e9"}]'
    body = b'{ "max_tokens":1,"n":1.0,\n ' + messages + b' ,"model" : "gpt-4o"}'
    answer = await stage.ask(router, request(CHAT, body))
    assert (answer.status, answer.replica) == (200, router.id_of(one))
    assert inference(one) == [body.replace(b' : "gpt-4o"', b' : "one"')]
    assert one.requests[-1].header(b"content-length") == str(len(inference(one)[0])).encode()


@pytest.mark.parametrize("form_", FORMS.values(), ids=FORMS)
async def test_an_alias_serves_every_form_and_its_stream(stage: Stage, form_: Form) -> None:
    router, one, _ = await two_models(stage, alias=("gpt-4o=one",))
    answer = await stage.ask(router, form_.request(model="gpt-4o", stream=True))
    assert (answer.status, answer.replica) == (200, router.id_of(one))
    assert form_.good_end in answer.body


async def test_alias_and_model_share_what_is_cached_and_the_session(stage: Stage) -> None:
    replicas = await stage.replicas(3, models=("one",))
    router = await stage.router(*replicas, watched=True, alias=("gpt-4o=one",))
    first = await stage.ask(router, chat(STORY, model="gpt-4o"))
    second = await stage.ask(router, chat(STORY, model="one"))
    assert (second.replica, second.reason) == (first.replica, "warm")
    session = [("x-session-id", "s")]
    third = await stage.ask(router, chat(model="one", headers=session))
    assert (await stage.ask(router, chat(model="gpt-4o", headers=session))).replica == third.replica


async def test_an_alias_is_listed_and_the_books_say_the_model(stage: Stage) -> None:
    router, *_ = await two_models(stage, alias=("gpt-4o=one",))
    listed = (await stage.ask(router, request("/v1/models"))).json()["data"]
    assert [model["id"] for model in listed] == ["gpt-4o", "one", "other"]
    await stage.ask(router, chat(model="gpt-4o"))
    await router.idle()
    assert router.records.finished[-1].model == "one"


async def test_an_alias_of_nothing_is_an_unknown_model(stage: Stage) -> None:
    router, *_ = await two_models(stage, alias=("gpt-4o=gone",))
    assert "`gone`" in not_found(FORMS["chat"], await stage.ask(router, chat(model="gpt-4o")))


async def test_a_retry_of_an_alias_sends_the_model_too(stage: Stage) -> None:
    replicas = await stage.replicas(2, models=("one",))
    router = await stage.router(*replicas, watched=True, alias=("gpt-4o=one",))
    await router.until(lambda: all(replica.models for replica in router.house.fleet))
    session = [("x-session-id", "s")]
    home = (await stage.ask(router, chat(model="gpt-4o", headers=session))).replica
    first, second = sorted(replicas, key=lambda replica: router.id_of(replica) != home)
    first.faults.set(Fault(FaultKind.RESET_BEFORE_FIRST_BYTE))
    answer = await stage.ask(router, chat(model="gpt-4o", headers=session))
    assert (answer.status, answer.replica) == (200, router.id_of(second))
    assert json.loads(inference(first)[-1])["model"] == "one"
    assert json.loads(inference(second)[-1])["model"] == "one"
