"""A listener that does not take what it is sent loses events, not the router's memory."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from router.app.admin.feed import DECISIONS_PER_S, WAITING_DECISIONS, Feed, Listener, event
from tests.adapters.records import record


def read(sent: bytes | None) -> list[tuple[str, Any]]:
    """Event names and their data."""
    assert sent is not None
    assert sent.endswith(b"\n\n")
    parts = [one.split("\n", 1) for one in sent.decode().removesuffix("\n\n").split("\n\n")]
    return [(name.removeprefix("event: "), msgspec.json.decode(data.removeprefix("data: "))) for name, data in parts]


async def test_what_is_taken_is_all_there_is() -> None:
    listener = Listener()
    taking = asyncio.ensure_future(listener.take())
    listener.put_decision(event("decision", {"n": 1}))
    assert read(await taking) == [("decision", {"n": 1})]
    listener.put_overview(event("overview", {"n": 2}))
    listener.put_decision(event("decision", {"n": 3}))
    listener.skip(4)
    assert read(await listener.take()) == [("decision", {"n": 3}), ("skipped", {"count": 4}), ("overview", {"n": 2})]


async def test_one_that_does_not_read_has_the_last_decisions_and_the_newest_overview() -> None:
    listener = Listener()
    for number in range(1_000):
        listener.put_decision(event("decision", {"n": number}))
        listener.put_overview(event("overview", {"n": number}))
    events = read(await listener.take())
    assert len(events) == WAITING_DECISIONS + 2
    assert events[0] == ("decision", {"n": 1_000 - WAITING_DECISIONS})
    assert events[-2:] == [("skipped", {"count": 1_000 - WAITING_DECISIONS}), ("overview", {"n": 999})]


async def test_the_end_comes_before_all_that_was_not_taken() -> None:
    listener = Listener()
    listener.put_decision(event("decision", {}))
    listener.close()
    assert await listener.take() is None
    assert await listener.take() is None


async def test_no_more_than_so_many_decisions_a_second_wait_to_be_made() -> None:
    feed = Feed()
    with feed.listening():
        for number in range(100):
            feed.request_finished(record(request_id=str(number)))
        feed.request_finished(record(decision=None))
        assert [one.request_id for one in feed.pending()] == [str(number) for number in range(DECISIONS_PER_S)]
        assert feed.next_second() == 100 - DECISIONS_PER_S
        feed.request_finished(record(request_id="next"))
        assert [one.request_id for one in feed.pending()] == ["next"]
        assert feed.next_second() == 0


async def test_while_nobody_listens_nothing_is_kept() -> None:
    feed = Feed()
    feed.request_finished(record())
    with feed.listening():
        assert not feed.pending()
        for _ in range(100):
            feed.request_finished(record())
    with feed.listening():
        assert not feed.pending()
        assert feed.next_second() == 0


async def test_who_comes_after_the_end_is_told_so() -> None:
    feed = Feed()
    feed.close()
    with feed.listening() as listener:
        assert await listener.take() is None
    assert not feed.listeners
