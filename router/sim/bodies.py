"""Reading and checking request bodies: what vLLM refuses, it refuses here, in its order."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from router.sim.errors import UNREADABLE_DETAIL, Refusal, bad_value, media_type_refusal, raw_refusal, schema_error
from router.sim.record import Arrival

Body = dict[str, Any]

_INT_FIELDS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "n", "min_tokens", "stream_interval")
_FLOAT_FIELDS = ("temperature", "top_p")
_MAX_SALT_CHARS = 128
_MOST_CHOICES = 16_384
"""VLLM_MAX_N_SEQUENCES."""
_SALT_FORBIDS = frozenset("@/\\\0")


def read_json(arrival: Arrival) -> Body:
    """Return the body of a JSON request.

    Raises:
        Refusal: another media type, not UTF-8, not JSON, not an object.
    """
    media_type = (arrival.header(b"content-type") or b"").split(b";", 1)[0].strip().lower()
    if media_type != b"application/json":
        raise media_type_refusal()
    if not arrival.body:
        raise schema_error("missing", "body", "Field required", None)
    try:
        body = msgspec.json.decode(arrival.body)
    except ValueError:
        body = _read_leniently(arrival.body)
    if not isinstance(body, dict):
        text = "Input should be a valid dictionary or object to extract fields from"
        raise schema_error("model_attributes_type", "body", text, body)
    return body


def _read_leniently(body: bytes) -> Any:
    """Read as the standard library does, which takes NaN and lone surrogates, and says where it stopped."""
    try:
        return json.loads(body)
    except json.JSONDecodeError as error:
        extra = f", 'ctx': {{'error': {error.msg!r}}}"
        raise schema_error("json_invalid", f"body.{error.pos}", "JSON decode error", {}, extra) from None
    except (UnicodeDecodeError, RecursionError):
        raise raw_refusal(400, UNREADABLE_DETAIL) from None


def need(body: Body, *names: str) -> None:
    """Refuse a body that lacks a field.

    Raises:
        Refusal: the first one missing.
    """
    for name in names:
        if name not in body:
            raise schema_error("missing", f"body.{name}", "Field required", body)


def check_types(body: Body) -> None:
    """Refuse fields of the wrong JSON type, numbers in text excepted.

    Raises:
        Refusal: the first one found.
    """
    for name in _INT_FIELDS:
        if (value := body.get(name)) is not None:
            body[name] = _integer(name, value)
    for name in _FLOAT_FIELDS:
        if (value := body.get(name)) is not None:
            body[name] = _number(name, value)
    if not isinstance(body.get("model"), str | None):
        raise schema_error("string_type", "body.model", "Input should be a valid string", body["model"])
    if not isinstance(body.get("messages", []), list):
        raise schema_error("list_type", "body.messages", "Input should be a valid list", body["messages"])


def _integer(name: str, value: Any) -> int:
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            number = float(value)
            if number == int(number):
                return int(number)
        except (ValueError, OverflowError):
            pass
    text = "Input should be a valid integer"
    if isinstance(value, str):
        raise schema_error("int_parsing", f"body.{name}", f"{text}, unable to parse string as an integer", value)
    raise schema_error("int_type", f"body.{name}", text, value)


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        text = "Input should be a valid number"
        kind = "float_type"
        if isinstance(value, str):
            kind, text = "float_parsing", f"{text}, unable to parse string as a number"
        raise schema_error(kind, f"body.{name}", text, value) from None


def check_generation(body: Body, max_model_len: int) -> None:
    """Refuse combinations and values that vLLM refuses for every kind of generation.

    Raises:
        Refusal: the first one found.
    """
    if body.get("stream_options") and not body.get("stream"):
        raise bad_value("Stream options can only be defined when `stream=True`.", "stream_options")
    _check_salt(body.get("cache_salt"))
    _check_limit(body, max_model_len)
    if (n := body.get("n")) is not None and not 1 <= n <= _MOST_CHOICES:
        limit = "least 1" if n < 1 else f"most {_MOST_CHOICES}"
        raise Refusal(f"n must be at {limit}, got {n}.")
    if (temperature := body.get("temperature")) is not None:
        if not math.isfinite(temperature):
            raise bad_value(f"temperature must be a finite number, got {temperature}.", "temperature", temperature)
        if temperature < 0:
            raise bad_value(f"temperature must be non-negative, got {temperature}.", "temperature", temperature)
    if (top_p := body.get("top_p")) is not None and not 0 < top_p <= 1:
        raise bad_value(f"top_p must be in (0, 1], got {top_p}.", "top_p", top_p)


def _check_limit(body: Body, max_model_len: int) -> None:
    for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
        limit = body.get(name)
        if limit is None:
            continue
        if limit < 1:
            raise bad_value(f"max_tokens must be at least 1, got {limit}.", "max_tokens", limit)
        if limit > max_model_len:
            raise bad_value(
                f"{name}={limit} cannot be greater than max_model_len={max_model_len}. Please request fewer output "
                "tokens.",
                name,
                limit,
            )


def _check_salt(salt: Any) -> None:
    if salt is None:
        return
    if not isinstance(salt, str) or not salt:
        raise bad_value("Parameter 'cache_salt' must be a non-empty string if provided.", "cache_salt")
    if len(salt) > _MAX_SALT_CHARS or not _SALT_FORBIDS.isdisjoint(salt):
        raise bad_value(
            "Parameter 'cache_salt' must be at most 128 characters and must not contain '@', '/', '\\\\', or NUL.",
            "cache_salt",
        )


def check_tools(body: Body) -> None:
    """Refuse tool choices that do not fit the tools.

    Raises:
        Refusal: the first one found.
    """
    tools, choice = body.get("tools"), body.get("tool_choice")
    if tools == []:
        raise bad_value(
            "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely.", "tools"
        )
    if choice in (None, "none"):
        return
    if not tools:
        raise bad_value("When using `tool_choice`, `tools` must be set.", "tool_choice")
    if choice not in ("auto", "required") and not isinstance(choice, dict):
        raise bad_value(
            f'Invalid value for `tool_choice`: {choice}! Only named tools, "none", "auto" or "required" are supported.',
            "tool_choice",
        )


def as_integer(value: Any, default: int) -> int:
    """Return a checked integer field, or the default where it is absent."""
    return default if value is None else int(value)
