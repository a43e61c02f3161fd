"""An adapter that an engine loads while the router runs: the first request that names it makes the router look."""

from __future__ import annotations

from router.core.health import State
from tests.rig.client import chat, request
from tests.rig.stage import Stage


async def test_the_first_request_for_it_is_refused_and_soon_it_is_served_and_listed(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica, watched=True, models_interval_s=3600)
    books = router.books(replica)
    await router.until(lambda: books.health.state is State.READY and books.models == {"sim-model"})
    replica.state.adapters.append("adapter")
    client = await stage.client(router)
    assert (await client.ask(chat(model="adapter"))).status == 404
    await router.until(lambda: "adapter" in books.models, "an unknown model made nobody look")
    assert (await client.ask(chat(model="adapter"))).status == 200
    listed = (await client.ask(request("/v1/models"))).json()["data"]
    assert [model["id"] for model in listed] == ["adapter", "sim-model"]


async def test_an_adapter_that_was_unloaded_is_not_asked_for_any_more(stage: Stage) -> None:
    replica = await stage.replica()
    replica.state.adapters.append("adapter")
    router = await stage.router(replica, watched=True, models_interval_s=0.5)
    books = router.books(replica)
    await router.until(lambda: books.models == {"sim-model", "adapter"})
    replica.state.adapters.clear()
    await router.until(lambda: books.models == {"sim-model"})
    assert (await stage.ask(router, chat(model="adapter"))).status == 404
