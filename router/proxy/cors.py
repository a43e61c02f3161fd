"""Which web pages may call the client port: browsers ask, and look for these header lines (WHATWG Fetch, CORS)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from router.proxy.headers import Headers

EXPOSED = (
    b"retry-after, x-request-id, x-warmroute-replica, x-warmroute-decision, x-warmroute-matched-tokens, "
    b"x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
    b"x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, x-warmroute-explain"
)
"""What a page may read beside the few headers that it always may."""

METHODS = b"GET, HEAD, POST, DELETE"

PREFLIGHT_S = 600
"""How long a browser may go by one answer; Chromium takes no more than 7,200."""

_NAMES = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z, -]{1,2048}")
"""Header names with commas between them. `*` in an answer would not cover Authorization, so they are repeated."""


class Cors:
    """The rules; without origins, pages get what the engines say."""

    def __init__(self, origins: tuple[str, ...] = ()) -> None:
        """`origins` in lower case, or `*`."""
        self.on = bool(origins)
        self._any = "*" in origins
        self._origins = frozenset(origin.encode() for origin in origins)

    def headers(self, origin: bytes | None) -> Headers:
        """Return the headers of an answer to a page of this origin: always some, where CORS is on."""
        if self._any:
            return [(b"access-control-allow-origin", b"*"), (b"access-control-expose-headers", EXPOSED)]
        headers = [(b"access-control-expose-headers", EXPOSED), (b"vary", b"Origin")]
        if origin is not None and origin.lower() in self._origins:
            headers.insert(0, (b"access-control-allow-origin", origin))
        return headers

    def lines(self, origin: bytes | None) -> bytes:
        """Return `headers` as they are written."""
        return b"".join(b"%b: %b\r\n" % header for header in self.headers(origin)) if self.on else b""

    def is_preflight(self, method: bytes, fields: Mapping[bytes, bytes]) -> bool:
        """Tell whether a browser asks whether it may ask: it sends no key with that."""
        return self.on and method == b"OPTIONS" and b"access-control-request-method" in fields and b"origin" in fields

    def preflight_headers(self, fields: Mapping[bytes, bytes]) -> Headers:
        """Return the headers of the answer to that."""
        headers = self.headers(fields.get(b"origin"))
        headers.append((b"access-control-allow-methods", METHODS))
        wanted = fields.get(b"access-control-request-headers", b"")
        if _NAMES.fullmatch(wanted):
            headers.append((b"access-control-allow-headers", wanted))
        headers.append((b"access-control-max-age", b"%d" % PREFLIGHT_S))
        return headers
