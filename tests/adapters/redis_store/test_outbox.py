"""Two bounded queues: in order, the oldest goes first, and what goes is counted."""

from __future__ import annotations

from router.adapters.redis_store.outbox import BATCH, MAX_NEWS, MAX_NEWS_BYTES, MAX_WRITES, Outbox, Write
from router.core.news import Homed, News, Opened


def news(count: int, first: int = 0) -> list[News]:
    return [Homed(number, "r0") for number in range(first, first + count)]


def writes(count: int, first: int = 0) -> list[Write]:
    return [Write(b"%d" % number, ("home", "r0", "")) for number in range(first, first + count)]


def filled(told: list[News], written: list[Write]) -> Outbox:
    outbox = Outbox()
    for item in told:
        outbox.tell(item)
    for write in written:
        outbox.write(write)
    return outbox


def drained(outbox: Outbox) -> tuple[list[News], list[Write]]:
    told: list[News] = []
    written: list[Write] = []
    while len(outbox):
        told += outbox.take_news()
        written += outbox.take_writes()
    return told, written


def test_what_comes_in_goes_out_in_order_and_in_batches() -> None:
    told, written = news(BATCH + 5), writes(BATCH * 2)
    outbox = filled(told, written)
    assert len(outbox) == BATCH * 3 + 5
    assert (outbox.take_news(), outbox.take_writes()) == (told[:BATCH], written[:BATCH])
    assert drained(outbox) == (told[BATCH:], written[BATCH:])
    assert (outbox.take_news(), outbox.take_writes()) == ([], [])
    assert outbox.dropped == {"news": 0, "turns": 0}


def test_what_could_not_be_sent_goes_out_first_and_in_order() -> None:
    told, written = news(BATCH + 5), writes(BATCH + 5)
    outbox = filled(told, written)
    outbox.give_back(outbox.take_news(), outbox.take_writes())
    assert drained(outbox) == (told, written)


def test_the_oldest_news_goes_where_there_is_too_much() -> None:
    told = news(MAX_NEWS + 7)
    outbox = filled(told, [])
    assert outbox.dropped == {"news": 7, "turns": 0}
    assert drained(outbox) == (told[7:], [])


def test_the_oldest_writes_go_where_there_are_too_many() -> None:
    written = writes(MAX_WRITES + 7)
    outbox = filled([], written)
    assert outbox.dropped == {"news": 0, "turns": 7}
    assert drained(outbox) == ([], written[7:])


def test_what_is_given_back_to_a_full_outbox_is_the_oldest_and_goes() -> None:
    outbox = filled(news(MAX_NEWS), writes(MAX_WRITES))
    told, written = outbox.take_news(), outbox.take_writes()
    for number in range(BATCH - 10):
        outbox.tell(Homed(-number, "r1"))
        outbox.write(Write(b"new", ("home", "r1", "")))
    outbox.give_back(told, written)
    assert outbox.dropped == {"news": BATCH - 10, "turns": BATCH - 10}
    assert len(outbox) == MAX_NEWS + MAX_WRITES
    assert outbox.take_news()[0] == Homed(BATCH - 10, "r0")


def big(number: int) -> Opened:
    return Opened(number, "r0", 100, bytes(80_000), bytes(40_000))


def test_long_prompts_are_bounded_by_their_bytes() -> None:
    outbox = Outbox()
    for number in range(200):
        outbox.tell(big(number))
        assert len(outbox) * 120_000 <= MAX_NEWS_BYTES
    assert outbox.dropped["news"] == 200 - len(outbox) > 0
    kept = drained(outbox)[0]
    assert kept == [big(number) for number in range(200 - len(kept), 200)]


def test_bytes_are_counted_out_when_taken_and_in_again_when_given_back() -> None:
    outbox = Outbox()
    fits = MAX_NEWS_BYTES // 120_100
    for _ in range(5):
        for number in range(fits):
            outbox.tell(big(number))
        while taken := outbox.take_news():
            last = taken
    assert outbox.dropped["news"] == 0
    for _ in range(3):
        outbox.give_back(last, [])
        last = outbox.take_news()
    for number in range(fits):
        outbox.tell(big(number))
    assert outbox.dropped["news"] == 0
    outbox.give_back(last, [])
    assert outbox.dropped["news"] == len(last)
