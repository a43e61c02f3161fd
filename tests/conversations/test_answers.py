"""Answers in every framing, cut at every place: the client reads what the engine answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import chain, combinations
from random import Random

import pytest

from tests.conversations.reading import Answers, check_answer
from tests.conversations.table import ANSWERS
from tests.conversations.talking import AT_ONCE, DEEP, Answering, read_answers
from tests.rig.running import Router
from tests.rig.stage import Stage

Places = tuple[int, ...]

OLD_EVERY = 7
"""One cut in so many is tried with a client of HTTP/1.0, too, whose connection ends with its answer."""


def places(length: int) -> Iterator[Places]:
    """Where an answer is cut: nowhere, at each place, everywhere, and at some places."""
    chance = Random(length)
    yield ()
    yield from ((place,) for place in range(1, length))
    yield tuple(range(1, length))
    if DEEP:
        yield from combinations(range(1, length), 2)
    else:
        yield from (tuple(chance.sample(range(length), chance.randint(1, 6))) for _ in range(10))


async def new_client(stage: Stage, router: Router, answering: Answering, name: str, ways: Iterable[Places]) -> int:
    """Ask again and again on one connection; return how often."""
    client = await stage.client(router)
    expected, method = answering.expected(name), ANSWERS[name].method
    count = 0
    for way in ways:
        count += 1
        client.send(answering.asked(name, way))
        (answer,) = await read_answers(client, Answers(method), 1)
        check_answer(expected, answer)
        assert not (answer.last or answer.interim)
    return count


async def old_client(stage: Stage, router: Router, answering: Answering, name: str, way: Places) -> None:
    """Ask as a client of HTTP/1.0 does."""
    client = await stage.client(router)
    client.send(answering.asked(name, way, b"1.0"))
    (answer,) = await read_answers(client, Answers(ANSWERS[name].method), 1)
    check_answer(answering.expected(name), answer, http_1_0=True)
    assert answer.last
    client.leave()


@pytest.mark.timeout(3600 if DEEP else 60)
@pytest.mark.parametrize("name", ANSWERS)
async def test_what_comes_back_is_what_was_answered_wherever_it_is_cut(stage: Stage, name: str) -> None:
    answering = Answering(ANSWERS)
    upstream = await stage.upstream(answering.script)
    router = await stage.router(upstream)
    length = len(ANSWERS[name].data)
    shared = iter(places(length))
    async with asyncio.TaskGroup() as group:
        clients = [group.create_task(new_client(stage, router, answering, name, shared)) for _ in range(AT_ONCE)]
    assert sum(client.result() for client in clients) > length
    for way in chain([()], list(places(length))[1::OLD_EVERY]):
        await old_client(stage, router, answering, name, way)
    assert router.records.failed == []
