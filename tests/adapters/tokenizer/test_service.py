"""Threads, line and deadline: each prompt is answered once, whatever becomes of it."""

from __future__ import annotations

import asyncio
import json
import threading
from array import array
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from router.adapters.tokenizer import service
from router.adapters.tokenizer.counts import Result
from router.adapters.tokenizer.encoder import Encoder
from router.adapters.tokenizer.model_files import Model
from router.adapters.tokenizer.models import Models
from router.adapters.tokenizer.service import TokenizerThreads
from router.adapters.tokenizer.template import ChatTemplate
from router.core.token_ids import TokenIds, token_scope
from router.core.types import RoutingRequest
from router.proxy.openai import read_request
from tests.adapters.tokenizer.tiny import CHATML, tiny_tokenizer
from tests.rig.sharing import eventually

NEVER_S = 1_000.0
AT_ONCE_S = 0.0
LONG = "the rain in the city is warm and cold " * 20
ENCODER = Encoder(tiny_tokenizer())


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": LONG}]} | fields).encode()


def request(data: bytes, path: str = "/v1/chat/completions") -> RoutingRequest:
    return read_request(path, data, None)


class Gate:
    """Something that a template prints, and that holds its thread until it is opened."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()

    def __str__(self) -> str:
        self.entered.set()
        assert self.opened.wait(30)
        return "gate"


class Desk:
    """A tokenizer, and those who ask it."""

    def __init__(self, threads: TokenizerThreads) -> None:
        self.threads = threads

    def ask(self, data: bytes, path: str = "/v1/chat/completions") -> asyncio.Future[TokenIds | None]:
        answer: asyncio.Future[TokenIds | None] = asyncio.get_running_loop().create_future()
        self.threads.ask(request(data, path), data, answer.set_result)  # a second result would raise
        return answer

    async def rests(self) -> bool:
        return self.threads.waiting == 0

    def count(self, result: Result) -> int:
        return self.threads.counts.results[result]


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.opened.set()


@pytest.fixture
async def desk(gate: Gate) -> AsyncIterator[Callable[..., Desk]]:
    made: list[Desk] = []

    def make(deadline_s: float = NEVER_S, source: str = CHATML) -> Desk:
        template = ChatTemplate(source, {"gate": gate})  # type: ignore[dict-item]
        models = Models({"": Model(ENCODER, template, None)}, lambda name: None)
        made.append(Desk(TokenizerThreads(models, deadline_s)))
        return made[-1]

    yield make
    gate.opened.set()
    for one in made:
        await drained(one)
        one.threads.close()


async def drained(one: Desk) -> None:
    """Wait until no thread has anything left."""
    await eventually(one.rests, "the line to be empty")


HELD = "{{ gate }}" + CHATML


async def test_a_prompt_becomes_its_tokens(desk: Callable[..., Desk]) -> None:
    one = desk()
    tokens = await one.ask(body(cache_salt="salt"))
    text = f"<|im_start|>user\n{LONG}<|im_end|>\n<|im_start|>assistant\n"
    assert tokens is not None
    assert list(tokens.ids) == tiny_tokenizer().encode(text).ids
    assert tokens.scope == token_scope(None, "salt")
    assert one.count(Result.IN_TIME) == 1


async def test_a_prompt_without_a_key_is_not_asked_for(desk: Callable[..., Desk]) -> None:
    one = desk()
    assert await one.ask(json.dumps({"messages": [{"role": "user", "content": "short"}]}).encode()) is None
    assert await one.ask(json.dumps({"input": LONG}).encode(), "/v1/embeddings") is None
    assert sum(one.threads.counts.results.values()) == 0


async def test_what_can_t_be_rendered_has_no_tokens(desk: Callable[..., Desk]) -> None:
    one = desk()
    assert await one.ask(body(truncate_prompt_tokens=3)) is None
    assert one.count(Result.UNRENDERED) == 1


async def test_a_template_that_fails_is_counted_and_logged_once(
    desk: Callable[..., Desk], caplog: pytest.LogCaptureFixture
) -> None:
    one = desk(source="{{ messages[0].content }}{{ raise_exception(messages[0].content) }}")
    assert await one.ask(body()) is None
    assert await one.ask(body()) is None
    assert one.count(Result.FAILED) == 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "rain" not in caplog.text, "no prompt in the log"


async def test_at_the_deadline_it_goes_without_and_what_has_begun_is_finished(
    desk: Callable[..., Desk], gate: Gate
) -> None:
    one = desk(AT_ONCE_S, HELD)
    assert await one.ask(body()) is None
    assert one.count(Result.LATE) == 1
    gate.opened.set()
    await drained(one)
    assert one.count(Result.IN_TIME) == 0


async def test_what_waited_until_its_deadline_is_not_begun(desk: Callable[..., Desk], gate: Gate) -> None:
    one = desk(AT_ONCE_S, HELD)
    answers = [one.ask(body()) for _ in range(service.THREADS + 5)]
    assert await asyncio.gather(*answers) == [None] * len(answers)
    await asyncio.get_running_loop().run_in_executor(None, gate.entered.wait, 30)
    gate.opened.set()
    await drained(one)
    took = next(metric for metric in one.threads.counts.collect() if metric.name == "warmroute_tokenizer_seconds")
    begun = next(sample.value for sample in took.samples if sample.name.endswith("_count"))
    assert 1 <= begun <= service.THREADS


async def test_a_full_line_is_not_joined(desk: Callable[..., Desk], gate: Gate) -> None:
    one = desk(NEVER_S, HELD)
    waiting = [one.ask(body()) for _ in range(service.MAX_WAITING)]
    assert await one.ask(body()) is None
    assert one.count(Result.BUSY) == 1
    gate.opened.set()
    assert all(tokens is not None for tokens in await asyncio.gather(*waiting))


async def test_a_body_that_would_hold_the_streams_up_is_not_read(desk: Callable[..., Desk]) -> None:
    one = desk()
    assert await one.ask(body(padding=" " * service.MAX_BODY_BYTES)) is None
    assert one.count(Result.BUSY) == 1


async def test_tokens_that_the_engines_do_not_count_are_given_up(
    desk: Callable[..., Desk], caplog: pytest.LogCaptureFixture
) -> None:
    one = desk()
    tokenised = request(body())._replace(tokens=TokenIds(array("I", range(10)), 0))
    for _ in range(8):
        one.threads.reported(tokenised, 11)
    one.threads.reported(request(body()), 11)  # one without tokens says nothing
    assert await one.ask(body()) is None
    assert one.count(Result.DISTRUSTED) == 1
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_loop_that_ends_while_a_thread_works_leaves_nothing_behind(gate: Gate) -> None:
    template = ChatTemplate(HELD, {"gate": gate})  # type: ignore[dict-item]
    threads = TokenizerThreads(Models({"": Model(ENCODER, template, None)}, lambda name: None), NEVER_S)

    async def ask() -> None:
        Desk(threads).ask(body())

    asyncio.run(ask())
    gate.opened.set()
    threads.close()
    for thread in threading.enumerate():
        if thread.name.startswith("tokenizer"):
            thread.join(30)
            assert not thread.is_alive()
