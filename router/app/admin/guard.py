"""Who may use the admin port: those with the token, and no web page that a browser happens to have open."""

from __future__ import annotations

import logging
from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest
from ipaddress import ip_address
from typing import Any

from fastapi.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from router.app.dashboard.serving import is_page
from router.app.settings.model import Settings

LOGGER = logging.getLogger("warmroute.admin")

OPEN_PATHS = frozenset({"/metrics", "/livez", "/readyz"})
"""What collectors and probes read: they have no token, and no secret is there."""

SAFE_METHODS = frozenset({"GET", "HEAD"})
"""A foreign page can send these and never reads their answers."""

_FOREIGN_SITES = frozenset({"cross-site", "same-site"})


class AdminGuard:
    """Stands before the admin application."""

    def __init__(self, app: ASGIApp, settings: Callable[[], Settings]) -> None:
        """`settings` gives those in force: the token may change."""
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or let through."""
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            headers = {name: value.decode("latin-1") for name, value in reversed(scope["headers"])}
            refusal = _refusal(scope["method"], headers, self._settings(), is_page(scope["path"]))
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _refusal(method: str, headers: dict[bytes, str], settings: Settings, page: bool) -> Response | None:
    """Return what to answer in place of what was asked for. `page`: that holds no data, and asks for the token."""
    token = settings.admin_token
    if token is not None and not page and not _has_token(headers, token.get_secret_value()):
        return _error(401, "the admin port wants its token: Authorization: Bearer TOKEN", "Bearer")
    if method not in SAFE_METHODS and _is_foreign(headers):
        return _error(403, "a web page of another origin may not do this")
    if token is None and is_loopback(settings.admin_host) and not _names_this_machine(headers.get(b"host", "")):
        return _error(403, "without admin_token, ask for localhost or an address: other names may be a web page's own")
    return None


def _has_token(headers: dict[bytes, str], token: str) -> bool:
    scheme, _, given = headers.get(b"authorization", "").partition(" ")
    digests = [sha256(text.strip().encode()).digest() for text in (given, token)]
    return scheme.lower() == "bearer" and compare_digest(*digests)


def _is_foreign(headers: dict[bytes, str]) -> bool:
    """Tell whether a browser sends this for a page that did not come from here."""
    origin, host = headers.get(b"origin"), headers.get(b"host", "")
    if origin is not None and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
        return True
    return headers.get(b"sec-fetch-site", "") in _FOREIGN_SITES


def _names_this_machine(host: str) -> bool:
    """Tell whether a Host header is no name that somebody could point here (DNS rebinding)."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    name = name.strip("[]").lower()
    return not name or name == "localhost" or name.endswith(".localhost") or _address(name) is not None


def _address(text: str) -> Any:
    try:
        return ip_address(text)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches what listens on a host."""
    address = _address(host.strip("[]"))
    return address.is_loopback if address is not None else host.lower() == "localhost"


def _error(status: int, message: str, challenge: str | None = None) -> JSONResponse:
    body = {"message": message, "type": "invalid_request_error", "param": None, "code": status}
    headers = None if challenge is None else {"www-authenticate": challenge}
    return JSONResponse({"error": body}, status, headers)


def warn_if_open(settings: Settings) -> None:
    """Log a warning if others than this machine reach the admin port without a token."""
    if settings.admin_token is None and not is_loopback(settings.admin_host):
        LOGGER.warning(
            "the admin port listens on %s and asks for no token: set WARMROUTE_ADMIN_TOKEN, or keep others from it",
            settings.admin_host,
        )
