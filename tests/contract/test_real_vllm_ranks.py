"""A real vLLM with two data-parallel ranks, in development mode: ranks, pausing and sleeping as the router takes them.

Not run by default: see test_real_vllm_cache.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from router.adapters.vllm_metrics import VllmProbe
from router.sim.errors import Refusal
from router.sim.server import SimOptions, SimReplica
from tests.contract.vllm_server import MODEL_NAME, VllmCache, make_tiny_model, serving_vllm, vllm_python

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

CACHE = VllmCache()
TOKENS = CACHE.blocks * CACHE.block_tokens


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    python, work = vllm_python(), tmp_path_factory.mktemp("vllm")
    model = make_tiny_model(python, work / "model")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("VLLM_SERVER_DEV_MODE", "1")
        with serving_vllm(python, model, work, CACHE, "--data-parallel-size", "2") as url:
            yield url


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=60, limits=limits, trust_env=False) as client:
        yield client


def chat(rank: object) -> dict[str, object]:
    body = {"model": MODEL_NAME, "messages": [{"role": "user", "content": "hello there " * 60}], "max_tokens": 1}
    return {"headers": {"x-data-parallel-rank": str(rank)}, "json": body}


async def test_ranks_are_told_apart_and_one_that_there_is_not_is_none(engine: str, client: httpx.AsyncClient) -> None:
    probe = VllmProbe(client, engine)
    before = await probe.reports([0, 1])
    answer = await client.post(f"{engine}/v1/chat/completions", **chat(1))  # type: ignore[arg-type]
    tokens = answer.json()["usage"]["prompt_tokens"]
    first, second, third, whole = await probe.reports([0, 1, 2, None])
    assert third is None
    assert first and second and whole and before[0] and before[1]
    assert (first.kv_tokens, whole.kv_tokens) == (TOKENS, 2 * TOKENS)
    assert first.prefix_queries_tokens == before[0].prefix_queries_tokens
    assert second.prefix_queries_tokens == (before[1].prefix_queries_tokens or 0) + tokens


async def test_a_rank_out_of_range_is_refused_as_the_simulated_server_does(
    engine: str, client: httpx.AsyncClient
) -> None:
    real = await client.post(f"{engine}/v1/chat/completions", **chat(5))  # type: ignore[arg-type]
    async with SimReplica(SimOptions(models=(MODEL_NAME,), data_parallel=2)) as replica:
        with pytest.raises(Refusal):
            replica.state.ranks.asked_for(b"5")
        simulated = await client.post(f"{replica.url}/v1/chat/completions", **chat(5))  # type: ignore[arg-type]
    assert real.status_code == simulated.status_code == 400
    assert real.json() == simulated.json()


async def test_a_paused_engine_is_well_awake_and_generates_nothing(engine: str, client: httpx.AsyncClient) -> None:
    probe = VllmProbe(client, engine)
    assert await probe.paused() is False
    assert await probe.generates(MODEL_NAME, 0)
    (await client.post(f"{engine}/pause")).raise_for_status()
    assert await probe.paused() is True
    await probe.health()
    [report] = await probe.reports([None])
    assert report is not None
    assert report.asleep is False, "the metrics do not tell"
    with pytest.raises(TimeoutError):
        await probe.generates(MODEL_NAME, 0)
    (await client.post(f"{engine}/resume")).raise_for_status()
    assert await probe.paused() is False
    assert await probe.generates(MODEL_NAME, 1)


async def test_a_sleeping_engine_says_so_and_wakes_cold(engine: str, client: httpx.AsyncClient) -> None:
    probe = VllmProbe(client, engine)
    for _ in range(2):
        warm = await client.post(f"{engine}/v1/chat/completions", **chat(0))  # type: ignore[arg-type]
    assert warm.json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    (await client.post(f"{engine}/sleep?level=1")).raise_for_status()
    assert [report.asleep for report in await probe.reports([0, 1]) if report] == [True, True]
    assert await probe.paused() is True
    (await client.post(f"{engine}/wake_up")).raise_for_status()
    assert [report.asleep for report in await probe.reports([0, 1]) if report] == [False, False]
    cold = await client.post(f"{engine}/v1/chat/completions", **chat(0))  # type: ignore[arg-type]
    assert cold.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
