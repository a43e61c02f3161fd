"""What a client is given is what h11 reads in the engine's bytes, or an error: no other answer, no half as a whole."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import pytest
from hypothesis import given

from tests.conversations.grammar import Told, answers
from tests.conversations.lane import Lane
from tests.conversations.reading import Answers, Message, Requests, check_answer, check_refusal
from tests.conversations.talking import DEEP, next_read, received, send
from tests.rig.client import Client
from tests.rig.upstream import Peer

GATEWAY = {502, 503, 504}


_CONTROLS = rb"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]"
_REASON = re.compile(rb"^HTTP/1\.[01] [0-9]{3} [^\r\n]*" + _CONTROLS, re.MULTILINE)


def reason_passed_over(data: bytes) -> bytes:
    """The same without control characters in reasons, which h11 refuses: whatever they are, they end at the router."""
    return _REASON.sub(lambda found: re.sub(_CONTROLS, b"?", found[0]), data)


class Expected:
    """What h11 reads in an engine's bytes."""

    def __init__(self, told: Told) -> None:
        self.reading = Answers(told.method)
        self.reading.feed(reason_passed_over(b"".join(told.pieces)))
        self.clean = len(self.reading.messages) == 1 and not (self.reading.begun or self.reading.error)
        """Whether they are one answer, and nothing behind it."""
        self.closes = not self.clean or self.reading.over
        """Whether the engine closes its connection then."""
        if self.closes:
            self.reading.feed(b"")

    @property
    def answer(self) -> Message | None:
        """The answer; None where there is none, or not all of one."""
        return self.reading.messages[0] if self.reading.messages else None


class Engine:
    """Answers honest requests with their own mark, and others as it was told."""

    def __init__(self) -> None:
        self.told = Told(b"GET", [], whole=False)
        self.closes = False

    async def script(self, peer: Peer) -> None:
        reading = Requests()
        async for data in received(peer.reader):
            before = len(reading.messages)
            reading.feed(data)
            for message in reading.messages[before:]:
                mark = message.value(b"x-honest")
                if mark is not None:
                    peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(mark), mark))
                    continue
                await send(peer, self.told.pieces)
                if self.closes:
                    peer.close()
                    return


class Checked:
    """A lane, and its engine."""

    def __init__(self, lane: Lane, engine: Engine) -> None:
        self.lane, self.engine = lane, engine
        self.count = 0

    def play(self, told: Told) -> None:
        expected = Expected(told)
        self.engine.told, self.engine.closes = told, expected.closes
        self.lane.run(self._play(told, expected))

    async def _play(self, told: Told, expected: Expected) -> None:
        async with self.lane.client() as client:
            got = Answers(told.method)
            client.send(b"%b /v1/x HTTP/1.1\r\nhost: x\r\n\r\n" % told.method)
            ended = await self._read(client, got)
            self.check(told, expected, got)
            if not ended:
                await self._is_honest(client, expected)
        if ended:
            async with self.lane.client() as client:
                await self._is_honest(client, expected)

    async def _read(self, client: Client, got: Answers) -> bool:
        """Read one answer; return whether the connection ended."""
        with contextlib.suppress(ConnectionError):
            while not got.messages or got.over:
                data = await next_read(client.reader)
                got.feed(data)
                if not data:
                    return True
            return False
        return True

    def check(self, told: Told, expected: Expected, got: Answers) -> None:
        assert not got.begun or not got.messages, "bytes behind the answer"
        if not got.messages:
            assert not told.whole, "a good answer was cut"
            return
        (answer,) = got.messages
        if not answer.all(b"x-warmroute-replica"):
            assert not told.whole, "a good answer was refused"
            if told.method != b"HEAD":
                check_refusal(answer, statuses=GATEWAY)
            return
        bodiless = told.method == b"HEAD" or answer.status in (204, 304)
        if bodiless and "Transfer-Encoding" in str(expected.reading.error):
            return  # how a body would be coded is nothing to an answer without one
        assert expected.answer is not None, f"an answer, where h11 reads: {expected.reading.error}"
        check_answer(expected.answer, answer)

    async def _is_honest(self, client: Client, expected: Expected) -> None:
        """Nothing of it is left: the next request, on the same connection if it lives, gets its own answer.

        Bytes behind the end of an answer that come only when its connection serves the next request cost that request
        its engine, and not more.
        """
        answer = await self._ask(client)
        if not expected.clean and not answer.all(b"x-warmroute-replica"):
            check_refusal(answer, statuses=GATEWAY)
            answer = await self._ask(client)
        assert answer.body == b"%d" % self.count

    async def _ask(self, client: Client) -> Message:
        self.count += 1
        client.send(b"GET /v1/x HTTP/1.1\r\nhost: x\r\nx-honest: %d\r\n\r\n" % self.count)
        got = Answers()
        assert not await self._read(client, got)
        assert not got.begun
        (answer,) = got.messages
        return answer


@pytest.fixture(scope="module")
def checked() -> Iterator[Checked]:
    engine = Engine()
    with Lane(engine.script) as lane:
        yield Checked(lane, engine)


@pytest.mark.timeout(7200 if DEEP else 60)
@given(told=answers())
def test_what_a_client_is_given_is_what_another_parser_reads(checked: Checked, told: Told) -> None:
    checked.play(told)
