"""No replica is configured: the router starts anyway and says so."""

import pytest

from tests.rig.client import chat, request
from tests.rig.forms import FORMS, Form
from tests.rig.stage import Stage


@pytest.mark.parametrize("name", ["chat", "completions", "responses"])
async def test_requests_get_503_with_retry_after_in_openais_form(stage: Stage, name: str) -> None:
    router = await stage.router()
    answer = await stage.ask(router, FORMS[name].request(stream=True))
    assert answer.status == 503
    assert answer.error["code"] == "no_replica"
    assert int(answer.header("retry-after") or 0) >= 1
    assert answer.replica is None


async def test_messages_get_it_in_anthropics_form(stage: Stage) -> None:
    form: Form = FORMS["messages"]
    router = await stage.router()
    answer = await stage.ask(router, form.request())
    assert answer.status == 503
    assert answer.json()["error"]["type"] == "overloaded_error"


async def test_health_tells_the_truth(stage: Stage) -> None:
    router = await stage.router(watched=True)
    for path in ("/health", "/readyz"):
        answer = await stage.ask(router, request(path))
        assert answer.status == 503
        assert answer.json() == {"status": "no replica is configured", "replicas": 0, "up": 0}
    assert (await stage.ask(router, request("/livez"))).status == 200
    assert (await stage.ask(router, request("/v1/models"))).json() == {"object": "list", "data": []}


async def test_it_is_counted(stage: Stage) -> None:
    router = await stage.router()
    await stage.ask(router, chat())
    text = (await (await router.admin()).get("/metrics")).text
    assert 'warmroute_errors_total{code="no_replica"} 1.0' in text
