"""Errors of the router's own, in OpenAI's form (Anthropic's on its path): whose fault, and whether to try again."""

from __future__ import annotations

from enum import Enum

import msgspec


class RouterError(Enum):
    """What the router itself answers: status, type, code in words, and the message."""

    BAD_REQUEST = (400, "invalid_request_error", "bad_request", "The request is not valid HTTP.")
    BODY_TOO_LARGE = (
        413,
        "invalid_request_error",
        "body_too_large",
        "The request body is larger than this router accepts (--max-body-bytes).",
    )
    NO_REPLICA = (
        503,
        "service_unavailable_error",
        "no_replica",
        "No replica is configured that could serve this request. Try again later.",
    )
    UPSTREAM_FAILED = (
        503,
        "service_unavailable_error",
        "upstream_failed",
        "Every replica that was tried refused or dropped the connection. Try again.",
    )
    UPSTREAM_SILENT = (
        504,
        "service_unavailable_error",
        "upstream_silent",
        "The replica did not begin its answer within the router's limit on silence (--silence-timeout-s).",
    )
    UPSTREAM_DIED = (
        502,
        "service_unavailable_error",
        "upstream_died",
        "The replica was lost in the middle of its answer; what came before is incomplete. Try again.",
    )

    @property
    def status(self) -> int:
        """HTTP status."""
        return self.value[0]

    @property
    def ends_connection(self) -> bool:
        """Tell whether the rest of the connection's bytes can't be understood, or is not wanted."""
        return self.status in (400, 413)

    @property
    def code(self) -> str:
        """The error in a word, as in `error.code`."""
        return self.value[2]

    @property
    def message(self) -> str:
        """What to tell the client."""
        return self.value[3]


RETRY_AFTER_S = {RouterError.NO_REPLICA: 5, RouterError.UPSTREAM_FAILED: 1}
"""Seconds for Retry-After: an ejected replica is tried again after at most a few, a missing one takes longer to
come."""


def error_body(error: RouterError, path: str) -> bytes:
    """Return the JSON body of an error answer to a request for `path`."""
    _, kind, code, message = error.value
    if path.startswith("/v1/messages"):
        return msgspec.json.encode({"type": "error", "error": {"type": _anthropic_type(error), "message": message}})
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": None, "code": code}})


def error_event(error: RouterError, path: str) -> bytes:
    """Return the server-sent event that ends a broken stream of `path`."""
    body = error_body(error, path)
    if path.startswith("/v1/messages"):
        return b"event: error\ndata: %b\n\n" % body
    if path.startswith("/v1/responses"):
        flat = {"type": "error", "code": error.code, "message": error.message, "param": None}
        return b"event: error\ndata: %b\n\n" % msgspec.json.encode(flat)
    return b"data: %b\n\n" % body


def _anthropic_type(error: RouterError) -> str:
    names = {400: "invalid_request_error", 413: "request_too_large", 503: "overloaded_error"}
    return names.get(error.status, "api_error")
