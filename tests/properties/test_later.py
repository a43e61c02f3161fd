"""Work that is put off is done once and in its order, and each record is told once, whatever fails meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.ports import RequestRecord
from router.proxy.later import AT_ONCE, Later, Work
from tests.adapters.records import record

RECORDS = [record(request_id=str(number)) for number in range(AT_ONCE * 4)]

pieces = st.sampled_from(["nothing", "record", "failure", "put more"])
steps = st.lists(st.tuples(pieces, st.integers(1, AT_ONCE)) | st.sampled_from(["work", "flush"]), max_size=8)


class Books:
    """Puts work of all kinds, and notes what is done of it and what is told."""

    def __init__(self, deaf: bool) -> None:
        self.deaf = deaf
        self.later = Later(self.tell)
        self.put: list[int] = []
        self.done: list[int] = []
        self.made: list[str] = []
        self.told: list[str] = []

    def tell(self, records: Sequence[RequestRecord]) -> None:
        assert records
        self.told += [each.request_id for each in records]
        if self.deaf:
            raise OSError

    def add(self, kind: str) -> None:
        number = len(self.put)
        self.put.append(number)
        self.later.put(self.piece(kind, number))

    def piece(self, kind: str, number: int) -> Work:
        def work() -> RequestRecord | None:
            self.done.append(number)
            if kind == "failure":
                raise ValueError
            if kind == "put more":
                self.add("record")
            if kind != "record":
                return None
            made = RECORDS[len(self.made) % len(RECORDS)]
            self.made.append(made.request_id)
            return made

        return work


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    """What fails here is logged each time."""
    logger = logging.getLogger("warmroute.later")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


@given(steps, st.booleans())
def test_all_is_done_and_told_once_and_in_order(told_to_do: list[str | tuple[str, int]], deaf: bool) -> None:
    asyncio.run(play(told_to_do, deaf))


async def play(told_to_do: list[str | tuple[str, int]], deaf: bool) -> None:
    books = Books(deaf)
    for step in told_to_do:
        if isinstance(step, tuple):
            for _ in range(step[1]):
                books.add(step[0])
        else:
            getattr(books.later, step)()
        assert books.done == books.put[: len(books.done)]
        assert books.told == books.made[: len(books.told)]
        assert len(books.made) - len(books.told) < AT_ONCE
        assert len(books.put) - len(books.done) <= AT_ONCE, "no more than some is gathered"
    books.later.flush()
    books.later.flush()  # what the first one's work has put
    assert (books.done, books.told) == (books.put, books.made)
