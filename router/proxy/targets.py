"""Which requests are for engines, by their target."""

from __future__ import annotations

import httptools

ENGINE_PATHS = frozenset(
    {
        "/tokenize",
        "/detokenize",
        "/invocations",
        "/generative_scoring",
        "/pooling",
        "/classify",
        "/score",
        "/rerank",
        "/v2/rerank",
        "/v2/embed",
        "/version",
        "/render",
        "/derender",
    }
)
"""An engine's inference paths outside /v1/. Its development and administration paths (/sleep, /reset_prefix_cache,
/metrics, ...) are not for clients of a fleet."""

ENGINE_PREFIXES = ("/v1/", "/inference/")


def is_proxied(method: bytes, path: str) -> bool:
    """Tell whether a request goes to an engine; everything else is answered by the router's own application."""
    if path == "/v1/models":
        return method not in (b"GET", b"HEAD")
    if path not in ENGINE_PATHS and not path.startswith(ENGINE_PREFIXES):
        return False
    return "/../" not in path and "/./" not in path and not path.endswith(("/..", "/."))


def origin_form(target: bytes) -> bytes:
    """Return path and query of a request target.

    Raises httptools.HttpParserError for what is no URL, and for one that has a fragment or a user in it: RFC 9112
    section 3.2, RFC 9110 section 4.2.4.
    """
    if target[:1] == b"/" and target[:2] != b"//" and b"#" not in target:
        return target
    url = httptools.parse_url(target)
    path = url.path or (b"/" if url.schema else b"")
    if url.userinfo or b"#" in target or not path.startswith(b"/"):
        raise httptools.HttpParserError("a target with a user or a fragment, or without a path")
    return path if url.query is None else b"%b?%b" % (path, url.query)
