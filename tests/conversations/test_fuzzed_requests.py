"""What reaches an engine is what h11 reads in the client's bytes, however these were made and damaged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given

from tests.conversations.grammar import requests
from tests.conversations.lane import Lane, Told, read
from tests.conversations.reading import Message, Reading, check_request
from tests.conversations.talking import DEEP, Engine


class Checked:
    """A lane, and what its engine has seen."""

    def __init__(self, lane: Lane, engine: Engine) -> None:
        self.lane, self.engine = lane, engine

    def play(self, pieces: list[bytes]) -> tuple[Reading, Told]:
        self.engine.seen.clear()
        sent = read(pieces)
        told = self.lane.run(self.lane.tell(pieces, sent))
        self.check(sent, told)
        return sent, told

    def check(self, sent: Reading, told: Told) -> None:
        assert sent.error or sent.begins_with_head or not told.answers.error, told.answers.error
        for index, answer in enumerate(told.answers.messages):
            self.check_answer(sent.messages[index : index + 1], answer)
        rest = iter(sent.messages)
        for seen in self.engine.seen:
            assert any(self.same(message, seen) for message in rest), "the engine saw what h11 did not read"
        if len(told.answers.messages) < len(sent.messages):
            assert self.may_lack(told), "a request got no answer"

    def may_lack(self, told: Told) -> bool:
        """Tell whether the connection was ended for a reason, before all that h11 reads was answered.

        It was refused, or had said that it ends; or it goes on badly behind a request that the router itself had
        answered before its body came, so that another answer would be of none; or what was sent on reset it.
        """
        answers = told.answers.messages
        return told.reset or bool(answers and (answers[-1].last or (told.ended and not answers[-1].all(b"x-saw"))))

    def check_answer(self, sent: list[Message], answer: Message) -> None:
        if answer.all(b"x-saw"):
            assert sent, "the router passed on what h11 can't read"
            check_request(sent[0], self.engine.request_of(answer), self.lane.authority)
        else:
            assert answer.status in range(200, 500), "an error of the router's own"

    def same(self, sent: Message, seen: Message) -> bool:
        try:
            check_request(sent, seen, self.lane.authority)
        except AssertionError:
            return False
        return True


@pytest.fixture(scope="module")
def checked() -> Iterator[Checked]:
    engine = Engine()
    with Lane(engine.script) as lane:
        yield Checked(lane, engine)


@pytest.mark.timeout(7200 if DEEP else 60)
@given(pieces=requests())
def test_what_is_passed_on_is_what_another_parser_reads(checked: Checked, pieces: list[bytes]) -> None:
    checked.play(pieces)
