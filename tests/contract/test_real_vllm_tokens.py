"""The tokens of a prompt as we make them against those a real vLLM makes: equal, id by id.

Not run by default: `pytest -m vllm` with VLLM_PYTHON set to the python of an environment with vLLM.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from router.adapters.tokenizer.model_files import Model, load_model
from router.adapters.tokenizer.models import tokenised
from tests.contract.chats import CHATS, COMPLETIONS, MESSAGES, RESPONSES
from tests.contract.templates import LLAMA, QWEN
from tests.contract.vllm_server import MODEL_NAME, VllmCache, make_tiny_model, serving_vllm, vllm_python

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

TEMPLATES = {"its own": None, "qwen": QWEN, "llama": LLAMA}
USAGE = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
UNKNOWN_TO_TOKENIZE = {"reasoning under its old name", "effort", "documents"}
WITH_TEMPLATES = "--trust-request-chat-template"
WITH_TOOLS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(vllm_python(), tmp_path_factory.mktemp("model") / "model")


@pytest.fixture(scope="module")
def client(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    work = tmp_path_factory.mktemp("vllm")
    server = serving_vllm(vllm_python(), folder, work, VllmCache(), WITH_TEMPLATES, *WITH_TOOLS)
    with server as url, httpx.Client(base_url=url, timeout=120) as client:
        yield client


@pytest.fixture(scope="module")
def models(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    """The model with each template."""
    found = {}
    for name, source in TEMPLATES.items():
        file = tmp_path_factory.mktemp("template") / "template.jinja"
        file.write_text(source or "")
        found[name] = load_model(folder, None if source is None else file)
    return found


def ours(model: Model, shape: str, body: dict[str, Any]) -> list[int]:
    return list(tokenised(model, None, shape, json.dumps({"model": MODEL_NAME, **body}).encode()).ids)


def asked(client: httpx.Client, path: str, body: dict[str, Any]) -> Any:
    answer = client.post(path, json={"model": MODEL_NAME, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def with_template(name: str) -> dict[str, Any]:
    return {} if TEMPLATES[name] is None else {"chat_template": TEMPLATES[name]}


@pytest.mark.parametrize("name", sorted(CHATS.keys() - UNKNOWN_TO_TOKENIZE))
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_chat(client: httpx.Client, models: dict[str, Model], template: str, name: str):
    real = asked(client, "/tokenize", CHATS[name] | with_template(template))["tokens"]
    assert ours(models[template], "chat", CHATS[name]) == real


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_chat_that_is_answered(client: httpx.Client, models: dict[str, Model], template: str, name: str):
    """What is generated from, which is what is cached."""
    more = {"max_tokens": 1, "return_token_ids": True} | with_template(template)
    real = asked(client, "/v1/chat/completions", CHATS[name] | more)["prompt_token_ids"]
    assert ours(models[template], "chat", CHATS[name]) == real


@pytest.mark.parametrize("name", COMPLETIONS)
def test_a_completion(client: httpx.Client, models: dict[str, Model], name: str):
    real = asked(client, "/tokenize", COMPLETIONS[name])["tokens"]
    assert ours(models["its own"], "completions", COMPLETIONS[name]) == real


@pytest.mark.parametrize("name", MESSAGES)
def test_messages(client: httpx.Client, models: dict[str, Model], name: str):
    usage = asked(client, "/v1/messages", MESSAGES[name] | {"max_tokens": 1})["usage"]
    real = sum(usage.get(name) or 0 for name in USAGE)
    assert len(ours(models["its own"], "messages", MESSAGES[name])) == real


@pytest.mark.parametrize("name", RESPONSES)
def test_responses(client: httpx.Client, models: dict[str, Model], name: str):
    usage = asked(client, "/v1/responses", RESPONSES[name] | {"max_output_tokens": 1})["usage"]
    assert len(ours(models["its own"], "responses", RESPONSES[name])) == usage["input_tokens"]
