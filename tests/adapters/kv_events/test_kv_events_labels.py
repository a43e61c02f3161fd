from array import array

from router.adapters.kv_events.decode import label_of
from router.adapters.kv_events.labels import Labels
from router.core.engine_cache.cache import EngineCache
from router.core.engine_cache.types import Held, Stored
from router.core.fleet import Fleet
from router.core.prompt import PromptBuilder
from router.core.ticket import Ticket
from router.core.token_ids import token_scope
from router.core.types import Prompt, RoutingRequest

TOKENS = array("I", range(16))


def prompt() -> Prompt:
    builder = PromptBuilder(1)
    builder.add(b"user", b"u" * 700)
    built = builder.build()
    assert built is not None
    return built


def sent(contents: EngineCache | None, known: Prompt | None) -> Ticket:
    fleet = Fleet()
    fleet.add("r-1").contents = contents
    return fleet.route(RoutingRequest("m", "chat", known, 700), 1.0)


def test_each_attempt_has_a_label_of_its_own() -> None:
    cache = EngineCache()
    lines = Labels(1).lines(sent(cache, prompt()), None, b"{}")
    name, _, label = lines.decode().strip().partition(": ")
    assert name == "x-session-id"
    assert label.startswith("wr-")
    assert Labels(2).lines(sent(EngineCache(), prompt()), None, b"{}") != lines, "other routers have other labels"


def test_its_events_are_known_for_its_own() -> None:
    cache, known = EngineCache(), prompt()
    label = Labels(1).lines(sent(cache, known), None, b"{}").decode().strip().partition(": ")[2]
    tokens = TOKENS[:8]
    cache.stored(Stored([1, 2], None, tokens, 4, token_scope(None, None), None, label_of(label)))
    assert cache.left_of_turn(known.hashes[-1], 9) == Held(8)


def test_a_clients_own_header_stands_for_the_label() -> None:
    cache, known = EngineCache(), prompt()
    assert Labels(1).lines(sent(cache, known), b"chat-7", b"{}") == b""
    cache.stored(Stored([1, 2], None, TOKENS[:8], 4, token_scope(None, None), None, label_of("chat-7")))
    assert cache.left_of_turn(known.hashes[-1], 9) == Held(8)


def test_nothing_is_sent_where_it_is_of_no_use() -> None:
    labels = Labels(1)
    assert labels.lines(sent(None, prompt()), None, b"{}") == b""
    assert labels.lines(sent(EngineCache(), None), None, b"{}") == b""
    for body in (b'{"session_id": "x"}' + b" " * 9_000, b" " * 9_000 + b'{"session_id": "x"}'):
        assert labels.lines(sent(EngineCache(), prompt()), None, body) == b""
