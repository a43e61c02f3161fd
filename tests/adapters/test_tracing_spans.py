"""What spans say: the names of the conventions, what counts as an error, and what must never be in them."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes, http_attributes, url_attributes
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import SpanKind

from router.adapters.tracing.spans import OPERATIONS, Tried, before_attempts, of_attempt, of_request
from router.core.misses.types import Cause, TurnAccount
from router.core.types import OutcomeKind, Usage
from router.proxy.openai import SHAPES
from router.proxy.report import CLIENT_LEFT_STATUS
from tests.adapters.records import decision, record

CONVENTIONS = (gen_ai_attributes, http_attributes, url_attributes, error_attributes)


def tried(outcome: OutcomeKind = OutcomeKind.COMPLETED, status: int | None = 200, **fields: Any) -> Tried:
    return Tried(7, decision(), 10.0, 10.5, 11.0, 12.0, status, outcome)._replace(**fields)


def test_every_name_is_the_routers_own_or_of_the_installed_conventions() -> None:
    turn = TurnAccount("s-1", 2, 30.0, 96, 64, 32, Cause.EVICTED, None)
    whole = record(turn=turn, client="c", error="upstream_died", queued_s=1.0)
    parts = [of_request(whole, 5.0, "http"), *before_attempts(whole, [tried()], 5.0), of_attempt(tried(), 1, "POST")]
    names = {name for part in parts for name in part.attributes}
    known = {value for module in CONVENTIONS for value in vars(module).values() if isinstance(value, str)}
    assert {name for name in names if not name.startswith("warmroute.")} <= known
    assert {name for name in names if name.startswith("gen_ai.")} >= {"gen_ai.usage.cache_read.input_tokens"}
    operations = {item.value for item in gen_ai_attributes.GenAiOperationNameValues}
    assert set(OPERATIONS.values()) <= operations
    assert set(OPERATIONS) == set(SHAPES.values())


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "chat m"),
        ({"shape": "completions"}, "text_completion m"),
        ({"shape": "embeddings"}, "embeddings m"),
        ({"decision": None}, "chat"),
        ({"model": ""}, "chat"),
        ({"shape": "unknown", "method": "GET"}, "GET"),
    ],
)
def test_a_name_has_no_more_variants_than_the_fleet_has_models(fields: dict[str, Any], name: str) -> None:
    assert of_request(record(**fields), 0.0, "http").name == name


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, None),
        ({"status": 500}, "500"),
        ({"status": 503, "error": "no_replica"}, "no_replica"),
        ({"status": 200, "outcome": OutcomeKind.DIED, "error": "upstream_died"}, "upstream_died"),
        ({"status": 404, "error": "model_not_found"}, None),
        ({"status": 429}, None),
        ({"status": CLIENT_LEFT_STATUS, "outcome": OutcomeKind.CLIENT_LEFT}, None),
    ],
)
def test_the_request_is_an_error_where_the_server_is_to_blame(fields: dict[str, Any], error: str | None) -> None:
    part = of_request(record(**fields), 0.0, "http")
    assert part.error == error
    assert part.kind is SpanKind.SERVER
    assert part.attributes.get("error.type") == (error or fields.get("error"))


def test_a_client_that_left_before_a_status_was_sent_has_none() -> None:
    part = of_request(record(status=CLIENT_LEFT_STATUS, outcome=OutcomeKind.CLIENT_LEFT), 0.0, "http")
    assert "http.response.status_code" not in part.attributes
    assert part.attributes["warmroute.outcome"] == "client-left"


@pytest.mark.parametrize(
    ("outcome", "status", "error"),
    [
        (OutcomeKind.COMPLETED, 200, None),
        (OutcomeKind.COMPLETED, 400, "400"),
        (OutcomeKind.ERRORED, 500, "500"),
        (OutcomeKind.BUSY, 503, "503"),
        (OutcomeKind.REFUSED, None, "refused"),
        (OutcomeKind.RESET, None, "reset"),
        (OutcomeKind.DIED, 200, "died"),
        (OutcomeKind.CLIENT_LEFT, 200, None),
        (OutcomeKind.CLIENT_LEFT, None, None),
    ],
)
def test_an_attempt_is_an_error_where_the_router_got_no_good_answer(
    outcome: OutcomeKind, status: int | None, error: str | None
) -> None:
    part = of_attempt(tried(outcome, status), 0, "POST")
    assert part.error == part.attributes.get("error.type") == error
    assert part.kind is SpanKind.CLIENT


def test_what_the_engine_did_not_say_is_left_out() -> None:
    part = of_request(record(usage=Usage(), streaming=False), 0.0, "http")
    assert not [name for name in part.attributes if "usage" in name or "finish" in name or "first_chunk" in name]


def test_an_endless_model_name_is_cut() -> None:
    part = of_request(record(model="m" * 10_000), 0.0, "http")
    assert len(part.name) < 250
    assert len(str(part.attributes["gen_ai.request.model"])) == 200


def test_a_request_that_was_turned_away_has_no_decision() -> None:
    assert before_attempts(record(overhead_s=0.0, decision=None), [], 0.0) == []
