"""vLLM's error bodies, word for word where a client could look at the words."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec

ENGINE_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
SHUTDOWN = "cannot schedule new futures after shutdown"
BUSY = "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance."
NOT_FOUND_DETAIL = b'{"detail":"Not Found"}'
METHOD_DETAIL = b'{"detail":"Method Not Allowed"}'
UNREADABLE_DETAIL = b'{"detail":"There was an error parsing the body"}'
UNAUTHORIZED = b'{"error":"Unauthorized"}'

_NAMED_TYPES = {400: "BadRequestError", 404: "NotFoundError", 500: "InternalServerError"}
"""Types that vLLM names itself; for other statuses it says the phrase."""
_TEXTS = {500: "Internal Server Error", 503: BUSY}


class Refusal(Exception):
    """A request that is answered with an error."""

    def __init__(
        self, message: str, *, status: int = 400, kind: str = "BadRequestError", param: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind
        self.param = param
        self.raw: bytes | None = None
        """A body that is no error object; goes out as it is."""
        self.validation = False
        """Found by the schema: in OpenAI's form everywhere, also under /v1/messages."""


def openai_error(message: str, kind: str, param: str | None, status: int) -> bytes:
    """Return the JSON of an OpenAI-style error."""
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": param, "code": status}})


def anthropic_error(message: str, kind: str) -> bytes:
    """Return the JSON of an Anthropic-style error."""
    return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": message}})


def status_error(status: int, message: str | None) -> bytes:
    """Return the body that vLLM sends with a status, its own words unless given others."""
    phrase = phrase_of(status) or "Error"
    return openai_error(message or _TEXTS.get(status, phrase), _NAMED_TYPES.get(status, phrase), None, status)


def phrase_of(status: int) -> str:
    """Return the reason phrase of a status; empty for an unknown one."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def refusal_body(refusal: Refusal, *, anthropic: bool) -> bytes:
    """Return the body for a refused request in the form its API uses."""
    if refusal.raw is not None:
        return refusal.raw
    if anthropic and not refusal.validation:
        return anthropic_error(refusal.message, refusal.kind)
    return openai_error(refusal.message, refusal.kind, refusal.param, refusal.status)


def bad_value(message: str, param: str, value: object = None) -> Refusal:
    """A field whose value makes no sense."""
    told = f"parameter={param}" if value is None else f"parameter={param}, value={value}"
    return Refusal(f"{message} ({told})", param=param)


def schema_error(kind: str, param: str, text: str, value: Any, extra: str = "") -> Refusal:
    """Return what the schema says of a body: one error, as pydantic would word it."""
    loc = f"'type': '{kind}', 'loc': '{param}', 'msg': '{text}', 'input': {_shown(value)!r}{extra}"
    refusal = Refusal(f"1 validation error:\n  {{{loc}}}", kind="Bad Request", param=param)
    refusal.validation = True
    return refusal


def _shown(value: Any) -> Any:
    if isinstance(value, list | dict):
        return f"<{type(value).__name__} of {len(value)} items>"
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    return value if len(value) <= 200 else value[:200] + "...[truncated]"


def raw_refusal(status: int, body: bytes) -> Refusal:
    """A refusal whose body is fixed."""
    refusal = Refusal("", status=status)
    refusal.raw = body
    return refusal


def media_type_refusal() -> Refusal:
    """A body that does not say it is JSON."""
    refusal = Refusal(
        "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed", kind="Bad Request"
    )
    refusal.validation = True
    return refusal


def unknown_model(name: str, served: str) -> Refusal:
    """No model of this name is served here."""
    message = f"The model `{name}` does not exist. Valid aliases: {served}."
    return Refusal(message, status=404, kind="NotFoundError", param="model")


def unknown_response(response_id: str) -> Refusal:
    """No response of this id is stored here."""
    message = f"Response with id '{response_id}' not found."
    return Refusal(message, status=404, kind="invalid_request_error", param="response_id")


def prompt_too_long(limit_tokens: int) -> Refusal:
    """A prompt above the model's length. vLLM stops counting one token above it."""
    return bad_value(
        f"This model's maximum context length is {limit_tokens} tokens. However, your prompt contains at least "
        f"{limit_tokens + 1} input tokens, which exceeds this limit even without any output tokens. Please reduce "
        "the length of the input prompt.",
        "input_tokens",
        limit_tokens + 1,
    )
