import asyncio
import logging

import pytest

from router.proxy.later import AT_ONCE, Later


async def test_work_is_done_in_its_order_soon() -> None:
    later, done, over = Later(), list[int](), asyncio.Event()
    for number in range(5):
        later.put(lambda number=number: done.append(number))  # type: ignore[misc]
    assert done == []
    later.put(over.set)
    await asyncio.wait_for(over.wait(), 5)
    assert done == [0, 1, 2, 3, 4]


async def test_no_more_than_some_is_gathered() -> None:
    later, done = Later(), list[int]()
    for number in range(AT_ONCE + 1):
        later.put(lambda number=number: done.append(number))  # type: ignore[misc]
    assert done == list(range(AT_ONCE))
    later.flush()
    assert done == list(range(AT_ONCE + 1))


async def test_what_is_put_meanwhile_is_done_next() -> None:
    later, done = Later(), list[str]()

    def first() -> None:
        later.put(lambda: done.append("later"))
        done.append("first")

    later.put(first)
    later.put(lambda: done.append("second"))
    later.flush()
    assert done == ["first", "second"]
    later.flush()
    assert done == ["first", "second", "later"]


async def test_one_piece_that_fails_takes_no_other_along(caplog: pytest.LogCaptureFixture) -> None:
    later, done = Later(), list[int]()
    later.put(lambda: done.append(1))
    later.put(lambda: done.append(1 // 0))
    later.put(lambda: done.append(3))
    with caplog.at_level(logging.ERROR):
        later.flush()
    assert done == [1, 3]
    assert [record.getMessage() for record in caplog.records] == ["something was not accounted for"]
