"""What the client port answers itself: models, health, and errors in OpenAI's form."""

from router.sim.faults import Fault, FaultKind
from tests.rig.client import chat, request
from tests.rig.running import Router
from tests.rig.stage import Stage


async def models_of(stage: Stage, router: Router) -> list[str]:
    answer = await stage.ask(router, request("/v1/models"))
    assert answer.status == 200
    body = answer.json()
    assert set(body) == {"object", "data"}
    assert body["object"] == "list"
    return [model["id"] for model in body["data"]]


async def test_models_are_those_of_all_replicas_each_as_its_engine_describes_it(stage: Stage) -> None:
    one = await stage.replica(models=("alpha", "shared"))
    two = await stage.replica(models=("beta", "shared"), max_model_len=4096)
    router = await stage.router(one, two, watched=True, scrape_interval_s=0.1)
    await router.until(lambda: bool(router.books(one).models and router.books(two).models))
    assert await models_of(stage, router) == ["alpha", "beta", "shared"]
    data = (await stage.ask(router, request("/v1/models"))).json()["data"]
    assert {model["id"]: model["max_model_len"] for model in data} == {
        "alpha": 131_072,
        "beta": 4096,
        "shared": 131_072,
    }
    assert all(model["owned_by"] == "vllm" and model["permission"] for model in data)


async def test_models_are_answered_from_memory(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica, watched=True, scrape_interval_s=0.1)
    await router.until(lambda: bool(router.books(replica).models))
    replica.faults.set(Fault(FaultKind.REFUSE))
    replica.restart_cold()
    asked = sum(arrival.path == "/v1/models" for arrival in replica.requests)
    for _ in range(20):
        assert await models_of(stage, router) == ["sim-model"]
    assert sum(arrival.path == "/v1/models" for arrival in replica.requests) == asked


async def test_a_lora_adapter_loaded_later_is_listed_and_routed(stage: Stage) -> None:
    plain, tuned = await stage.replicas(2)
    router = await stage.router(plain, tuned, watched=True, scrape_interval_s=0.1, models_interval_s=0.5)
    await router.until(lambda: bool(router.books(plain).models and router.books(tuned).models))
    tuned.state.adapters.append("my-lora")
    await router.until(lambda: "my-lora" in router.books(tuned).models, "the adapter was not noticed")
    assert await models_of(stage, router) == ["my-lora", "sim-model"]
    client = await stage.client(router)
    for _ in range(4):
        answer = await client.ask(chat(model="my-lora"))
        assert (answer.status, answer.replica) == (200, router.id_of(tuned))


async def test_a_model_goes_to_the_replicas_that_serve_it_and_counts_apart(stage: Stage) -> None:
    alpha, beta = await stage.replica(models=("alpha",)), await stage.replica(models=("beta",))
    router = await stage.router(alpha, beta, watched=True, scrape_interval_s=0.1)
    await router.until(lambda: bool(router.books(alpha).models and router.books(beta).models))
    client = await stage.client(router)
    for _ in range(3):
        assert (await client.ask(chat(model="alpha"))).replica == router.id_of(alpha)
        assert (await client.ask(chat(model="beta"))).replica == router.id_of(beta)


async def test_a_model_that_nobody_serves_gets_the_engines_own_404(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica, watched=True, scrape_interval_s=0.1)
    await router.until(lambda: bool(router.books(replica).models))
    answer = await stage.ask(router, chat(model="nobody"))
    assert answer.status == 404
    assert "does not exist" in answer.json()["error"]["message"]


async def test_health_is_about_the_fleet_and_livez_about_the_process(stage: Stage) -> None:
    router = await stage.router(*await stage.replicas(2))
    for path in ("/health", "/readyz"):
        answer = await stage.ask(router, request(path))
        assert (answer.status, answer.json()) == (200, {"status": "ok", "replicas": 2, "up": 2})
    live = await stage.ask(router, request("/livez"))
    assert (live.status, live.body) == (200, b"")


async def test_load_balancers_may_ask_with_head(stage: Stage) -> None:
    router = await stage.router(await stage.replica())
    client = await stage.client(router)
    for path in ("/health", "/livez", "/readyz", "/v1/models"):
        assert (await client.ask(request(path, method="HEAD"))).status == 200
    assert (await client.ask(chat())).status == 200, "no body was left on the connection"


async def test_unknown_paths_and_wrong_methods_are_refused_in_openais_form(stage: Stage) -> None:
    router = await stage.router(await stage.replica())
    client = await stage.client(router)
    for asked, status in ((request("/"), 404), (request("/nowhere", b"{}"), 404), (request("/health", b"{}"), 405)):
        answer = await client.ask(asked)
        assert answer.status == status
        assert answer.error["type"] == "invalid_request_error"
        assert answer.error["code"] == status


async def test_a_large_body_for_a_path_that_nobody_reads_does_not_block_the_connection(stage: Stage) -> None:
    router = await stage.router(await stage.replica())
    client = await stage.client(router)
    assert (await client.ask(request("/nowhere", b"x" * 3_000_000))).status == 404
    assert (await client.ask(chat())).status == 200


async def test_admin_paths_are_not_on_the_client_port(stage: Stage) -> None:
    router = await stage.router(await stage.replica())
    for path in ("/metrics", "/api/fleet", "/api/decisions", "/docs", "/openapi.json"):
        assert (await stage.ask(router, request(path))).status == 404
