"""LangChain's ChatOpenAI and OpenAIEmbeddings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

import httpx
import pytest
import tiktoken
import tiktoken.registry
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel, SecretStr

from tests.clients.fleet import LONG, Fleet


class Harbour(BaseModel):
    """A harbour."""

    name: Literal["Oslo", "Bergen"]
    ships: Literal[1, 2, 3]


CALLING = pytest.mark.parametrize("urls", [None])
"""Simulated replicas only: a model of random weights calls no tools."""


@tool
def look(at: Literal["the pier", "the sea"]) -> str:
    """Look at a place."""
    return f"water, {at} " * 100


@pytest.fixture
async def web(fleet: Fleet) -> AsyncIterator[dict[str, Any]]:
    """How a model is told where the router is; without the proxies of this machine's environment."""
    with httpx.Client(trust_env=False) as plain:
        async with httpx.AsyncClient(trust_env=False) as later:
            yield {
                "base_url": fleet.url, "api_key": "none", "model": fleet.model, "max_retries": 0,
                "http_client": plain, "http_async_client": later,
            }  # fmt: skip


@pytest.fixture
def chat(web: dict[str, Any]) -> ChatOpenAI:
    return ChatOpenAI(**web, max_completion_tokens=300, temperature=0, include_response_headers=True, stream_usage=True)


def headers(message: BaseMessage) -> dict[str, str]:
    found: dict[str, str] = message.response_metadata["headers"]
    return found


async def test_a_chat_stays_where_its_history_is(chat: ChatOpenAI) -> None:
    history: list[BaseMessage] = [SystemMessage(LONG), HumanMessage("Hello")]
    answers: list[AIMessage] = []
    for turn in range(3):
        answers.append(await chat.ainvoke(history))
        history += [answers[-1], HumanMessage(f"And then, {turn}?")]
    assert [headers(answer)["x-warmroute-decision"] for answer in answers[1:]] == ["warm", "warm"]
    usage = answers[-1].usage_metadata
    assert usage is not None
    assert usage["input_token_details"]["cache_read"] > 256


async def test_a_stream(chat: ChatOpenAI) -> None:
    chunks: list[Any] = [chunk async for chunk in chat.astream("Hello")]
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["output_tokens"] > 0


@CALLING
async def test_a_tools_round_trip(chat: ChatOpenAI) -> None:
    asking = chat.bind_tools([look], tool_choice="look")
    history: list[BaseMessage] = [HumanMessage(LONG)]
    decisions = []
    for _ in range(3):
        answer = await asking.ainvoke(history)
        decisions.append(headers(answer)["x-warmroute-decision"])
        (call,) = answer.tool_calls
        result = look.invoke(call)
        assert isinstance(result, ToolMessage)
        history += [answer, result]
    assert decisions[1:] == ["warm", "warm"]


@CALLING
async def test_a_streamed_call(chat: ChatOpenAI) -> None:
    chunks: list[Any] = [chunk async for chunk in chat.bind_tools([look], tool_choice="look").astream("Hello")]
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert isinstance(whole, AIMessage)
    assert [call["name"] for call in whole.tool_calls] == ["look"]
    assert set(whole.tool_calls[0]["args"]) == {"at"}


async def test_structured_answers(chat: ChatOpenAI) -> None:
    answer = await chat.with_structured_output(Harbour, method="json_schema").ainvoke("Name a harbour")
    assert isinstance(answer, Harbour)


@CALLING
async def test_structured_answers_by_a_call(chat: ChatOpenAI) -> None:
    answer = await chat.with_structured_output(Harbour, method="function_calling").ainvoke("Name a harbour")
    assert isinstance(answer, Harbour)


async def test_a_batch(chat: ChatOpenAI) -> None:
    answers = await chat.abatch([f"Number {number}" for number in range(5)])
    assert all(isinstance(answer, AIMessage) for answer in answers)


async def test_the_synchronous_calls(fleet: Fleet) -> None:
    def use(_: Any) -> tuple[str, int]:
        with httpx.Client(trust_env=False) as plain:
            chat = ChatOpenAI(
                base_url=fleet.url,
                api_key=SecretStr("none"),
                model=fleet.model,
                max_completion_tokens=9,
                http_client=plain,
            )
            return chat.invoke("Hello").id or "", len(list(chat.stream("Hello")))

    ident, chunks = await fleet.sync(use)
    assert ident
    assert chunks > 1


async def test_the_responses_api(web: dict[str, Any]) -> None:
    chat = ChatOpenAI(**web, max_completion_tokens=20, use_responses_api=True)
    first = await chat.ainvoke([HumanMessage(LONG)])
    assert first.response_metadata["model_name"]
    assert [chunk async for chunk in chat.astream("Hello")]


# Embeddings


@pytest.fixture
def offline_tokenizer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The library downloads the tokenizer of OpenAI's models; bytes for tokens will do here."""
    ranks = {bytes([value]): value for value in range(256)}
    encoding = tiktoken.Encoding("cl100k_base", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={})
    monkeypatch.setitem(tiktoken.registry.ENCODINGS, "cl100k_base", encoding)
    yield


@pytest.mark.usefixtures("offline_tokenizer")
async def test_embeddings_of_token_ids(simulated: Fleet) -> None:
    """By default the library sends ids of OpenAI's tokenizer, several lists in one request."""
    async with httpx.AsyncClient(trust_env=False) as later:
        embeddings = OpenAIEmbeddings(
            base_url=simulated.url, api_key="none", model="sim-model", http_async_client=later  # type: ignore[arg-type]
        )  # fmt: skip
        vectors = await embeddings.aembed_documents(["one", "two", "one"])
    assert vectors[0] == vectors[2] != vectors[1]
    (sent,) = [one for replica in simulated.replicas for one in replica.requests if b"embeddings" in one.path.encode()]
    assert b'"input":[[111,110,101],' in sent.body


async def test_embeddings_of_texts(simulated: Fleet) -> None:
    async with httpx.AsyncClient(trust_env=False) as later:
        embeddings = OpenAIEmbeddings(
            base_url=simulated.url, api_key="none", model="sim-model", http_async_client=later,  # type: ignore[arg-type]
            check_embedding_ctx_length=False,
        )  # fmt: skip
        assert len(await embeddings.aembed_query("one")) == len((await embeddings.aembed_documents(["one"]))[0])
    sent = [one for replica in simulated.replicas for one in replica.requests if b"embeddings" in one.path.encode()]
    assert all(b'"input":["one"]' in one.body or b'"input":"one"' in one.body for one in sent)
