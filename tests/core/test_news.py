"""What routers tell each other: it survives its encoding, and holds no text."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.fleet import Fleet
from router.core.news import Bulletin, Homed, News, Opened, Settled, opened, settled
from router.core.prompt import PromptBuilder, session_hash
from router.core.replica import Load
from router.core.tokens import turn_links
from router.core.types import Outcome, OutcomeKind, Prompt, RoutingRequest, Usage
from tests.core.worlds import SCOPE, chat, fleet_of

SECRET = "the harbour master keeps a parrot "
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Bulletin).decode


def completion(content: bytes) -> RoutingRequest:
    builder = PromptBuilder(SCOPE)
    builder.add_open(b"text", content)
    return RoutingRequest("m", "completions", builder.build(), len(content))


REQUESTS = {
    "chat": chat(("system", SECRET * 30), ("user", SECRET * 20), session="session-of-anna"),
    "text": completion((SECRET * 100).encode()),
    "text-view": completion(memoryview((SECRET * 100).encode())),  # type: ignore[arg-type]
    "keyless": RoutingRequest("m", "chat", None, 100, session=session_hash(SCOPE, "session-of-anna")),
}


def bulletin_of(fleet: Fleet, request: RoutingRequest, outcome: Outcome) -> tuple[Bulletin, Opened, Settled]:
    ticket = fleet.route(request, 0.0)
    beginning = opened(ticket)
    fleet.first_byte(ticket, 0.1)
    end = settled(ticket, fleet.settle(ticket, outcome, 0.2))
    return (
        Bulletin(ticket.number, True, [("r0", Load(3, 2, 1))], [beginning, end, Homed(2**64 - 1, "r1")]),
        beginning,
        end,
    )


COMPLETED = Outcome(OutcomeKind.COMPLETED, 200, Usage(800, 0, 60, "stop"))


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_bulletin_survives_its_encoding_and_holds_no_text(kind: str) -> None:
    bulletin, _, _ = bulletin_of(fleet_of(2), REQUESTS[kind], COMPLETED)
    encoded = encode(bulletin)
    again = decode(encoded)
    assert again == bulletin
    assert isinstance(again.loads[0][1], Load)
    pieces = [(SECRET * 2)[start : start + 8].encode() for start in range(len(SECRET))]
    assert not [piece for piece in [*pieces, b"session", b"anna"] if piece in encoded]


@pytest.mark.parametrize("kind", ["chat", "text", "text-view"])
def test_the_prompt_comes_back_as_far_as_a_mirror_needs_it(kind: str) -> None:
    _, beginning, _ = bulletin_of(fleet_of(2), REQUESTS[kind], COMPLETED)
    before, after = REQUESTS[kind].prompt, decode(encode(Bulletin(0, False, [], [beginning]))).news[0]
    assert before is not None
    assert isinstance(after, Opened)
    assert after.prompt() == Prompt(before.hashes, before.ends_bytes, [], None)


def test_a_keyless_request_has_no_prompt_and_keeps_its_session() -> None:
    _, beginning, end = bulletin_of(fleet_of(2), REQUESTS["keyless"], COMPLETED)
    assert (beginning.prompt(), beginning.session) == (None, REQUESTS["keyless"].session)
    assert (beginning.links, end.links) == ([], [])


@pytest.mark.parametrize("kind", ["chat", "text"])
def test_the_turns_end_is_estimated_first_and_counted_then(kind: str) -> None:
    fleet, request = fleet_of(2), REQUESTS[kind]
    assert request.prompt is not None
    estimated = fleet.explain(request, 0.0).prompt_tokens
    _, beginning, end = bulletin_of(fleet, request, COMPLETED)
    assert beginning.links == turn_links(request.prompt, estimated, 0)
    assert end.links == turn_links(request.prompt, 800, 60)


@pytest.mark.parametrize(
    ("outcome", "computed", "goes_on"),
    [
        (COMPLETED, True, True),
        (Outcome(OutcomeKind.CLIENT_LEFT, 200), True, True),
        (Outcome(OutcomeKind.DIED, 200), True, True),
        (Outcome(OutcomeKind.COMPLETED, 400), True, False),
        (Outcome(OutcomeKind.RESET), True, False),
    ],
)
def test_only_a_turn_that_was_served_has_an_end(outcome: Outcome, computed: bool, goes_on: bool) -> None:
    _, _, end = bulletin_of(fleet_of(2), REQUESTS["chat"], outcome)
    assert (end.computed, bool(end.links)) == (computed, goes_on)


def test_a_request_that_never_reached_the_engine_was_not_computed() -> None:
    fleet = fleet_of(2)
    ticket = fleet.route(REQUESTS["chat"], 0.0)
    end = settled(ticket, fleet.settle(ticket, Outcome(OutcomeKind.REFUSED), 0.1))
    assert (end.number, end.computed, end.links) == (ticket.number, False, [])


hashes = st.integers(0, 2**64 - 1)
names = st.text(max_size=20)
counts = st.integers(0, 2**40)
links = st.lists(st.tuples(hashes, hashes), max_size=3)
news = st.one_of(
    st.builds(Opened, counts, names, counts, st.binary(max_size=64), st.binary(max_size=64), links, st.none() | hashes),
    st.builds(Settled, counts, st.booleans(), st.booleans(), counts, st.floats(0, 100), links),
    st.builds(Homed, hashes, names),
)


@given(counts, st.booleans(), st.lists(news, max_size=8), st.booleans())
def test_every_bulletin_survives_its_encoding(oldest: int, whole: bool, told: list[News], leaving: bool) -> None:
    bulletin = Bulletin(oldest, whole, [("r", Load(1, 2, 3))], told, leaving)
    assert decode(encode(bulletin)) == bulletin
