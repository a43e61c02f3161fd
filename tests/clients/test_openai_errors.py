"""openai-python: every refusal is the exception that the library has for it, with its status, code and waiting time."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from router.sim.faults import Fault, FaultKind
from tests.clients.fleet import LONG, Fleet, at_rest
from tests.rig.client import CHAT
from tests.rig.stage import Stage

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello there"}]


async def say(fleet: Fleet, **options: Any) -> Any:
    body: dict[str, Any] = {"model": fleet.model, "messages": HELLO, "max_tokens": 5}
    return await fleet.openai.chat.completions.create(**(body | options))


async def test_a_wrong_value(fleet: Fleet) -> None:
    with pytest.raises(openai.BadRequestError, match="temperature") as refused:
        await say(fleet, temperature=-1)
    assert refused.value.type == "BadRequestError"
    assert refused.value.param == "temperature"


async def test_a_prompt_that_is_too_long(fleet: Fleet) -> None:
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        await say(fleet, messages=[{"role": "user", "content": LONG * 300}])


async def test_an_empty_tool_list(fleet: Fleet) -> None:
    with pytest.raises(openai.BadRequestError, match="empty array"):
        await say(fleet, tools=[])


async def test_a_format_without_its_schema(fleet: Fleet) -> None:
    with pytest.raises(openai.BadRequestError, match="json_schema"):
        await say(fleet, response_format={"type": "json_schema"})


async def test_an_unknown_model(fleet: Fleet) -> None:
    with pytest.raises(openai.NotFoundError, match="The model `nope` does not exist") as refused:
        await say(fleet, model="nope")
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
    assert refused.value.request_id


async def test_an_unknown_path(fleet: Fleet) -> None:
    with pytest.raises(openai.NotFoundError):
        await fleet.openai.files.list()


async def test_a_wrong_key(stage: Stage) -> None:
    async with await at_rest(stage, 1, api_keys="right") as fleet:
        assert (await say(fleet)).choices
        with pytest.raises(openai.AuthenticationError) as refused:
            await fleet.openai.with_options(api_key="wrong").chat.completions.create(model="sim-model", messages=HELLO)
        assert (refused.value.status_code, refused.value.code) == (401, "invalid_api_key")


async def test_a_body_that_is_too_large(stage: Stage) -> None:
    async with await at_rest(stage, 1, max_body_bytes=4096) as fleet:
        with pytest.raises(openai.APIStatusError) as refused:
            await say(fleet, messages=[{"role": "user", "content": LONG * 10}])
        assert (refused.value.status_code, refused.value.code) == (413, "body_too_large")


async def test_a_limit_of_the_key(stage: Stage) -> None:
    async with await at_rest(stage, 1, api_keys="right", key_requests_per_minute=1) as fleet:
        await say(fleet)
        with pytest.raises(openai.RateLimitError) as refused:
            await say(fleet)
        assert refused.value.code == "rate_limit_exceeded"
        assert 1 <= int(refused.value.response.headers["retry-after"]) <= 61


async def test_no_replica_takes_it(simulated: Fleet) -> None:
    for replica in simulated.replicas:
        replica.faults.set(Fault(FaultKind.REFUSE))
        replica.restart_cold()
    with pytest.raises(openai.InternalServerError) as refused:
        await say(simulated)
    assert refused.value.status_code == 503
    assert refused.value.code in ("upstream_failed", "no_replica")
    assert int(refused.value.response.headers["retry-after"]) >= 1


@pytest.mark.parametrize(("status", "kind"), [(500, openai.InternalServerError), (429, openai.RateLimitError)])
async def test_an_engines_own_refusal(simulated: Fleet, status: int, kind: type[openai.APIStatusError]) -> None:
    for replica in simulated.replicas:
        replica.faults.set(Fault(FaultKind.STATUS, status=status))
    with pytest.raises(kind) as refused:
        await say(simulated)
    assert refused.value.status_code == status


# Retries and time-outs


async def test_the_librarys_retry_is_another_request(stage: Stage) -> None:
    """The router has tried all that it may; the library tries again, after the time it is told."""
    async with await at_rest(stage, 1, max_retries=0) as fleet:
        (replica,) = fleet.replicas
        replica.faults.set(Fault(FaultKind.STATUS, status=503, count=1, path=CHAT))
        raw = await fleet.openai.with_options(max_retries=2).chat.completions.with_raw_response.create(
            model="sim-model", messages=HELLO, max_tokens=3
        )
        assert raw.parse().choices
        assert raw.retries_taken == 1


async def test_a_client_that_waits_no_longer_frees_the_engine(stage: Stage) -> None:
    async with await at_rest(stage, 1, time_scale=1.0) as fleet:
        (replica,) = fleet.replicas
        with pytest.raises(openai.APITimeoutError):
            await say(fleet, max_tokens=50_000, timeout=0.2, extra_body={"ignore_eos": True})
        await replica.wait_for(lambda: replica.engine.running == 0, 5.0)
        await fleet.router.idle()


async def test_a_cancelled_task_frees_the_engine(stage: Stage) -> None:
    async with await at_rest(stage, 1, time_scale=1.0) as fleet:
        (replica,) = fleet.replicas
        asking = asyncio.create_task(say(fleet, max_tokens=50_000, extra_body={"ignore_eos": True}))
        await replica.wait_for(lambda: replica.engine.running == 1, 5.0)
        asking.cancel()
        await replica.wait_for(lambda: replica.engine.running == 0, 5.0)
        await fleet.router.idle()
        with pytest.raises(asyncio.CancelledError):
            await asking
