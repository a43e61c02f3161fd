"""vLLM's engine process dies: streams get its error event and a proper end, others 500, then the port closes."""

import pytest

from router.sim.faults import Fault, FaultKind
from tests.rig.client import chat
from tests.rig.forms import FORMS, Form
from tests.rig.stage import Stage


@pytest.mark.parametrize("name", ["chat", "completions", "messages"])
async def test_reported_as_the_first_event_the_request_goes_elsewhere(stage: Stage, name: str) -> None:
    """The head and a 200 have come by then; no work was done that the client has seen."""
    form = FORMS[name]
    dying, good = await stage.replicas(2)
    dying.faults.set(Fault(FaultKind.STREAM_ERROR, after_chunks=0))
    router = await stage.router(dying, good)
    answer = await stage.ask(router, form.request(stream=True))
    assert (answer.status, answer.replica, answer.reason) == (200, router.id_of(good), "failover")
    assert form.good_end in answer.body
    assert b"error" not in answer.body
    assert router.records.failed == [(router.id_of(dying), "reset")]


async def test_with_no_alternate_the_engines_own_words_come_back(stage: Stage) -> None:
    dying = await stage.replica()
    dying.faults.set(Fault(FaultKind.STREAM_ERROR, after_chunks=0))
    router = await stage.router(dying)
    answer = await stage.ask(router, chat(stream=True))
    assert answer.events()[0]["error"]["message"].startswith("EngineCore encountered an issue")
    assert not router.books(dying).health.up


@pytest.mark.parametrize("form", [FORMS["chat"], FORMS["completions"]], ids=["chat", "completions"])
async def test_reported_mid_stream_it_passes_as_the_engine_said_it_and_ejects_the_replica(
    stage: Stage, form: Form
) -> None:
    dying, good = await stage.replicas(2)
    dying.faults.set(Fault(FaultKind.STREAM_ERROR, after_chunks=3))
    router = await stage.router(dying, good)
    answer = await stage.ask(router, form.request(stream=True, max_tokens=30, ignore_eos=True))
    events = answer.events()
    assert events[-2]["error"]["code"] == 500
    assert events[-1] == "[DONE]", "the engine said so itself"
    assert router.records.finished[-1].outcome == "died"
    assert not router.books(dying).health.up
    assert not good.requests


async def test_anthropics_error_event_mid_stream_ejects_too(stage: Stage) -> None:
    dying, good = await stage.replicas(2)
    dying.faults.set(Fault(FaultKind.STREAM_ERROR, after_chunks=3))
    router = await stage.router(dying, good)
    answer = await stage.ask(router, FORMS["messages"].request(stream=True, max_tokens=30, ignore_eos=True))
    assert b"event: error" in answer.body
    assert router.records.finished[-1].outcome == "died"
    assert not router.books(dying).health.up


async def test_running_requests_hear_of_it_and_all_later_ones_are_served_elsewhere(stage: Stage) -> None:
    dying, good = await stage.replicas(2, time_scale=1.0)
    router = await stage.router(dying, good)
    streaming, whole = await stage.client(router), await stage.client(router)
    session = [("x-session-id", "s")]
    streaming.send(chat(headers=session, stream=True, max_tokens=2_000, ignore_eos=True))
    answer = await streaming.head()
    assert answer.replica == router.id_of(dying)
    await streaming.chunk(answer)
    dying.faults.set(Fault(FaultKind.ENGINE_DIED))
    await streaming.rest(answer)
    assert answer.events()[-2]["error"]["type"] == "InternalServerError"
    await dying.wait_for(lambda: dying.open_connections == 0, 5.0)
    for _ in range(3):
        assert (await whole.ask(chat(headers=session))).replica == router.id_of(good)


async def test_a_500_of_a_dead_engine_is_the_answer_of_the_request_that_met_it(stage: Stage) -> None:
    """Work may have been done: it is not made twice."""
    dying, good = await stage.replicas(2, time_scale=1.0)
    router = await stage.router(dying, good)
    client = await stage.client(router)
    client.send(chat(max_tokens=2_000, ignore_eos=True))
    await dying.wait_for(lambda: dying.engine.running == 1, 5.0)
    dying.faults.set(Fault(FaultKind.ENGINE_DIED))
    answer = await client.answer()
    assert answer.status == 500
    assert answer.json()["error"]["message"].startswith("EngineCore encountered an issue")
    assert not good.requests


async def test_it_comes_back_as_a_cold_process(stage: Stage) -> None:
    dying, good = await stage.replicas(2)
    router = await stage.router(dying, good, watched=True, scrape_interval_s=0.1)
    text = "a long story, " * 100
    first = await stage.ask(router, chat(text, headers=[("x-session-id", "s")]))
    home = dying if first.replica == router.id_of(dying) else good
    await router.until(lambda: bool(router.books(home).report.prefix_queries_tokens))
    assert len(router.books(home).mirror) > 0
    home.faults.set(Fault(FaultKind.ENGINE_DIED))
    await router.until(lambda: not router.books(home).health.up)
    home.faults.clear()
    await router.until(lambda: router.books(home).health.up)
    await router.until(lambda: len(router.books(home).mirror) == 0, "what it held is gone")
