"""One GET over a bare socket: an HTTP client's modules take several times as long to import as the answer to come."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

if TYPE_CHECKING:
    import ssl

DEADLINE_S = 3.0
"""A router or an engine that is well answers in milliseconds; container engines give up after 5 to 30 s."""

SHOWN_BYTES = 300
"""What a line on the console needs of an answer that is not 200."""


class UnwellError(Exception):
    """Not 200 in time; the text says what instead, in one line."""


def ask(url: str, *, certificate_is_ours: bool = False, within_s: float = DEADLINE_S) -> None:
    """GET a URL (without a path: its /health) and return if the answer is 200; raise UnwellError if not.

    `certificate_is_ours`: it is not checked, since it names hosts that clients know, and not the address of here.
    """
    parts = _parsed(url)
    shown = f"{parts.scheme}://{parts.netloc}{parts.path or '/health'}"
    try:
        status, body = _get(parts, certificate_is_ours, within_s)
    except TimeoutError:
        raise UnwellError(f"{shown} has not answered within {within_s:g} s") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UnwellError(f"{shown}: {reason}") from None
    if status != "200":
        raise UnwellError(f"{shown} answers {status}{': ' if body else ''}{body}")


def _parsed(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and "@" not in parts.netloc
    except ValueError:
        usable = False
    if not usable or not url.isascii() or not url.isprintable() or " " in url:
        raise UnwellError(f"{url!r} is no URL to ask: http://host:port/path")
    return parts


def _get(parts: SplitResult, certificate_is_ours: bool, within_s: float) -> tuple[str, str]:
    """Return the status, and of one that is not 200 what it says. Raises OSError, ValueError for what is not HTTP."""
    secure = parts.scheme == "https"
    host, port = str(parts.hostname), parts.port or (443 if secure else 80)
    target = (parts.path or "/health") + (f"?{parts.query}" if parts.query else "")
    head = f"GET {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nUser-Agent: warmroute-health\r\nConnection: close\r\n\r\n"
    deadline_s = time.monotonic() + within_s
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection((host, port), within_s))
        connection.settimeout(_left_s(deadline_s))
        if secure:
            context = _tls(certificate_is_ours)
            connection = stack.enter_context(context.wrap_socket(connection, server_hostname=host))
        connection.sendall(head.encode())
        return _answer(connection, deadline_s)


def _tls(certificate_is_ours: bool) -> ssl.SSLContext:
    import ssl

    context = ssl.create_default_context()
    if certificate_is_ours:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _answer(connection: socket.socket, deadline_s: float) -> tuple[str, str]:
    data = b""
    while b"\r\n" not in data:
        data += _more(connection, deadline_s)
    version, status, *_ = [*data.partition(b"\r\n")[0].decode("latin-1").split(" ", 2), ""]
    if not version.startswith("HTTP/1.") or not status.isdecimal():
        raise ValueError("the answer is not HTTP")
    with contextlib.suppress(OSError, ValueError):
        while status != "200":
            data += _more(connection, deadline_s)
    body = data.partition(b"\r\n\r\n")[2][:SHOWN_BYTES].decode(errors="replace")
    return status, " ".join("".join(c for c in body if c.isprintable() or c.isspace()).split())


def _more(connection: socket.socket, deadline_s: float) -> bytes:
    """Return what comes next. Raises TimeoutError at the deadline, ValueError at the end."""
    connection.settimeout(_left_s(deadline_s))
    data = connection.recv(65_536)
    if not data:
        raise ValueError("the connection was closed without an answer")
    return data


def _left_s(deadline_s: float) -> float:
    """Return the seconds up to the deadline. Raises TimeoutError after it."""
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s
