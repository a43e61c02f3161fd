"""Client libraries, unchanged but for their base URL, at a router in front of simulated replicas or real vLLM servers.

`fleet` is both: simulated by default, and with `make test-vllm` two vLLM servers on the CPU. What only a simulated
fleet can do (embeddings beside a chat model, faults, many replicas) asks for `simulated`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator

import openai
import pytest

from tests.clients.fleet import Fleet, at_rest
from tests.contract.vllm_server import MODEL_NAME, VllmCache, make_tiny_model, serving_vllm, vllm_python
from tests.rig.stage import Stage

REAL_CACHE = VllmCache(blocks=640, max_model_len=16_384)
TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")
NO_BLANKS = ("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}')
"""A model of random weights would put blanks between two words of JSON without end."""
REAL = [pytest.mark.vllm, pytest.mark.timeout(900)]


@pytest.fixture(scope="session")
def vllm_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    python, work = vllm_python(), tmp_path_factory.mktemp("vllm")
    model = make_tiny_model(python, work / "model")
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(serving_vllm(python, model, work / name, REAL_CACHE, *TOOLS, *NO_BLANKS))
            for name in ("a", "b")
        ]


@pytest.fixture(params=["simulated", pytest.param("real", marks=REAL)])
def urls(request: pytest.FixtureRequest) -> list[str] | None:
    """Where the real servers are; None: simulated ones will do."""
    found: list[str] | None = request.getfixturevalue("vllm_servers") if request.param == "real" else None
    return found


@pytest.fixture
async def fleet(urls: list[str] | None, stage: Stage) -> AsyncIterator[Fleet]:
    async with contextlib.AsyncExitStack() as stack:
        if urls is None:
            yield await stack.enter_async_context(await at_rest(stage))
            return
        router = await stage.router(*urls, watched=True)
        await router.until(lambda: all(router.books(url).models for url in urls))
        yield await stack.enter_async_context(Fleet(router, [], MODEL_NAME))


@pytest.fixture
async def simulated(stage: Stage) -> AsyncIterator[Fleet]:
    async with await at_rest(stage) as fleet:
        yield fleet


@pytest.fixture
def client(fleet: Fleet) -> openai.AsyncOpenAI:
    return fleet.openai
