"""A source that is looked at again and again, and what is said of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from router.adapters.discovery.polled import Polled
from router.adapters.discovery.trouble import Readability, Unreadable
from router.ports import Endpoint
from tests.adapters.discovery.hearing import Log, hearing
from tests.rig.client import DEADLINE_S

A, B = [Endpoint("http://a:80")], [Endpoint("http://b:80")]


class Script:
    """Answers look by look, and waits for ever at the end."""

    def __init__(self, *looks: list[Endpoint] | None | Exception) -> None:
        self._looks = list(looks)
        self.over = asyncio.Event()

    async def read(self) -> list[Endpoint] | None:
        if not self._looks:
            self.over.set()
            await asyncio.Event().wait()
        look = self._looks.pop(0)
        if isinstance(look, Exception):
            raise look
        return look


async def told(*looks: list[Endpoint] | None | Exception) -> list[list[Endpoint]]:
    script = Script(*looks)
    async with hearing(Polled("name", script, 0.0)) as heard, asyncio.timeout(10):
        await script.over.wait()
    return heard.lists


async def test_only_changes_are_told() -> None:
    assert await told(A, A, None, list(A), B, A, [], []) == [A, B, A, []]


async def test_an_empty_first_list_is_told() -> None:
    assert await told([]) == [[]]


async def test_trouble_changes_nothing(log: Log) -> None:
    assert await told(Unreadable("x"), A, Unreadable("x"), KeyError("ours"), A, B) == [A, B]
    assert log.warnings == [
        "name can't be read, its last list stays good: x", "name can be read again",
        "name can't be read, its last list stays good: x", "name can be read again",
    ]  # fmt: skip


async def test_what_is_told_is_not_what_is_kept() -> None:
    """Whoever gets a list may change it."""
    source = Polled("name", Script(A, A, B), 0.0)
    found = source.endpoints()
    (await anext(found)).clear()
    assert await anext(found) == B
    await found.aclose()  # type: ignore[attr-defined]


async def test_a_cancellation_that_a_reader_drops_ends_it_all_the_same() -> None:
    """As asyncio.wait_for does before Python 3.12, when it comes together with what is waited for."""

    class Dropping:
        def __init__(self) -> None:
            self.looks = 0
            self.begun = asyncio.Event()

        async def read(self) -> list[Endpoint]:
            self.looks += 1
            self.begun.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return A

    reader = Dropping()

    async def follow() -> None:
        async for _ in Polled("name", reader, 0.0).endpoints():
            pass

    following = asyncio.ensure_future(follow())
    await reader.begun.wait()
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(DEADLINE_S):
            await following
    assert reader.looks == 1


def test_each_reason_is_logged_once_for_each_trouble(log: Log) -> None:
    readability = Readability("name")
    for _ in range(2):
        for reason in ("x", "y", "x", "y", "z", "z"):
            readability.failed(reason)
        readability.well()
        readability.well()
    assert log.warnings == ["name can't be read, its last list stays good: x", "name can be read again"] * 2
    assert log.of(logging.INFO) == ["name still can't be read: y", "name still can't be read: z"] * 2


def test_a_remark_is_logged_when_it_is_new(log: Log) -> None:
    readability = Readability("name")
    for remarks in (["b", "a"], ["a", "b"], ["b"], ["a", "b", "b"]):
        readability.remarks(remarks)
    assert log.warnings == ["name: a", "name: b", "name: a"]
