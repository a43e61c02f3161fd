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
    BODIES_FULL = (
        503,
        "service_unavailable_error",
        "bodies_full",
        "The bodies of other requests take as much memory as they may (--max-bodies-bytes). Try again.",
    )
    OUT_OF_FILES = (
        503,
        "service_unavailable_error",
        "out_of_files",
        "This router has as many files and connections open as its system lets it. Try again.",
    )
    INTERNAL = (500, "server_error", "internal_error", "The router made a mistake; its log says which.")
    UNAUTHORIZED = (
        401,
        "invalid_request_error",
        "invalid_api_key",
        "No valid API key came with the request. Send one as 'Authorization: Bearer KEY'.",
    )
    RATE_LIMITED = (429, "rate_limit_error", "rate_limit_exceeded", "A limit of this API key is reached.")
    REQUEST_TIMEOUT = (408, "invalid_request_error", "request_timeout", "The request did not arrive in time.")
    URL_TOO_LONG = (
        414,
        "invalid_request_error",
        "url_too_long",
        "The request's target is longer than this router accepts (--max-url-bytes).",
    )
    HEAD_TOO_LARGE = (
        431,
        "invalid_request_error",
        "head_too_large",
        "The request's head is larger than this router accepts (--max-head-bytes).",
    )
    TOO_MANY_CONNECTIONS = (
        503,
        "service_unavailable_error",
        "too_many_connections",
        "This router has as many connections as it accepts (--max-connections). Try again.",
    )
    UNKNOWN_MODEL = (
        404,
        "invalid_request_error",
        "model_not_found",
        "No replica serves this model.",
    )
    QUEUE_FULL = (
        429,
        "rate_limit_error",
        "queue_full",
        "All replicas are busy, and this request would wait for longer than is allowed (--max-queue-wait-s). Try again "
        "after the time in Retry-After.",
    )
    ROUTER_STOPPING = (
        503,
        "service_unavailable_error",
        "router_stopping",
        "This router is being stopped; what came before is incomplete. Try again.",
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
        return self.status in (400, 408, 413, 414, 431) or self in (RouterError.BODIES_FULL, RouterError.INTERNAL)

    @property
    def code(self) -> str:
        """The error in a word, as in `error.code`."""
        return self.value[2]

    @property
    def message(self) -> str:
        """What to tell the client."""
        return self.value[3]


RETRY_AFTER_S = {
    RouterError.NO_REPLICA: 5,
    RouterError.UPSTREAM_FAILED: 1,
    RouterError.ROUTER_STOPPING: 1,
    RouterError.TOO_MANY_CONNECTIONS: 1,
    RouterError.BODIES_FULL: 1,
    RouterError.OUT_OF_FILES: 1,
}
"""Seconds for Retry-After: an ejected replica is tried again after at most a few, a missing one takes longer to
come, and behind a load balancer another router is there at once."""

PARAMS = {RouterError.UNKNOWN_MODEL: "model"}
"""The field of the request that an error is about."""


def error_body(error: RouterError, path: str, message: str | None = None) -> bytes:
    """Return the JSON body of an error answer to a request for `path`; `message` where this case has its own."""
    _, kind, code, usual = error.value
    words = message or usual
    if path.startswith("/v1/messages"):
        return msgspec.json.encode({"type": "error", "error": {"type": _anthropic_type(error), "message": words}})
    return msgspec.json.encode({"error": {"message": words, "type": kind, "param": PARAMS.get(error), "code": code}})


def error_event(error: RouterError, path: str, message: str | None = None) -> bytes:
    """Return the server-sent event that ends a broken stream of `path`."""
    body = error_body(error, path, message)
    if path.startswith("/v1/messages"):
        return b"event: error\ndata: %b\n\n" % body
    if path.startswith("/v1/responses"):
        flat = {"type": "error", "code": error.code, "message": message or error.message, "param": None}
        return b"event: error\ndata: %b\n\n" % msgspec.json.encode(flat)
    return b"data: %b\n\n" % body


def _anthropic_type(error: RouterError) -> str:
    names = {
        400: "invalid_request_error",
        401: "authentication_error",
        404: "not_found_error",
        408: "invalid_request_error",
        413: "request_too_large",
        414: "invalid_request_error",
        429: "rate_limit_error",
        431: "invalid_request_error",
        503: "overloaded_error",
    }
    return names.get(error.status, "api_error")
