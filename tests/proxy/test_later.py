import asyncio
import logging
from collections.abc import Callable, Sequence

import pytest

from router.ports import RequestRecord
from router.proxy.later import AT_ONCE, Later, Work
from tests.adapters.records import record


def nobody(records: Sequence[RequestRecord]) -> None:
    """Is told nothing here."""


def noting(done: list[str], what: str) -> Work:
    def work() -> None:
        done.append(what)

    return work


def ending(request_id: str) -> Work:
    return lambda: record(request_id=request_id)


async def over(later: Later) -> None:
    """Wait until all that was put is done."""
    done = asyncio.Event()

    def last() -> None:
        done.set()

    later.put(last)
    await asyncio.wait_for(done.wait(), 5)


async def test_work_is_done_in_its_order_soon() -> None:
    later, done = Later(nobody), list[str]()
    for what in "abc":
        later.put(noting(done, what))
    assert done == []
    await over(later)
    assert done == ["a", "b", "c"]


async def test_no_more_than_some_is_gathered() -> None:
    later, done = Later(nobody), list[str]()
    for number in range(AT_ONCE + 1):
        later.put(noting(done, str(number)))
    assert len(done) == AT_ONCE
    later.flush()
    assert len(done) == AT_ONCE + 1


async def test_records_are_told_together_and_in_their_order() -> None:
    told: list[list[str]] = []
    later = Later(lambda records: told.append([each.request_id for each in records]))
    for name in "abc":
        later.put(ending(name))
    later.work()
    assert told == []
    later.put(ending("d"))
    later.flush()
    assert told == [["a", "b", "c", "d"]]
    later.flush()
    assert len(told) == 1, "nothing to tell"


async def test_no_record_waits_for_long() -> None:
    told, heard = list[str](), asyncio.Event()

    def tell(records: Sequence[RequestRecord]) -> None:
        told.extend(each.request_id for each in records)
        heard.set()

    later = Later(tell)
    later.put(ending("a"))
    later.work()
    await asyncio.wait_for(heard.wait(), 5)
    assert told == ["a"]


async def test_what_is_put_meanwhile_is_done_next() -> None:
    later, done = Later(nobody), list[str]()

    def first() -> None:
        later.put(noting(done, "later"))
        done.append("first")

    later.put(first)
    later.put(noting(done, "second"))
    later.flush()
    assert done == ["first", "second"]
    later.flush()
    assert done == ["first", "second", "later"]


def failing() -> None:
    raise ValueError


@pytest.mark.parametrize("tell", [nobody, lambda records: failing()])
async def test_what_fails_takes_nothing_else_along(
    tell: Callable[[Sequence[RequestRecord]], None], caplog: pytest.LogCaptureFixture
) -> None:
    later, done = Later(tell), list[str]()
    for work in (noting(done, "a"), failing, ending("r"), noting(done, "b")):
        later.put(work)
    with caplog.at_level(logging.ERROR):
        later.flush()
    assert done == ["a", "b"]
    assert len(caplog.records) == (1 if tell is nobody else 2)
    later.put(noting(done, "c"))
    later.flush()
    assert done == ["a", "b", "c"]
