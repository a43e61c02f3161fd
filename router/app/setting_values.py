"""What a setting's value may be, beyond its type and range: replica URLs, header names and where Redis is."""

import ipaddress
import json
import re
from collections.abc import Iterable
from urllib.parse import SplitResult, urlsplit

from pydantic import SecretStr

from router.adapters.redis_store.address import parse

_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 section 5.6.2, token
_DEFAULT_PORTS = {"http": 80, "https": 443}


def split_list(value: object) -> object:
    """A list as text, `a,b` or `["a", "b"]`, as a list; list items are split at commas too."""
    if isinstance(value, str):
        return _from_json(value) if value.lstrip().startswith("[") else _at_commas([value])
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return _at_commas(value)
    return value


def _from_json(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"begins like a JSON list and is none: {error}") from None


def _at_commas(items: Iterable[str]) -> list[str]:
    return [part.strip() for item in items for part in item.split(",") if part.strip()]


def replica_urls(urls: tuple[str, ...]) -> tuple[str, ...]:
    """The URLs in the form `scheme://host:port`; ValueError for one that is malformed or given twice."""
    return _without_repeats(map(replica_url, urls))


def replica_url(url: str) -> str:
    """The URL as `scheme://host:port` in lower case with the port written out; ValueError says what is wrong."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{url!r} is no URL: {error}") from None
    if "@" in url:  # not quoted: what stands before the @ may be a password
        raise ValueError("a URL must not carry a user name or password (see engine_api_key)")
    if problem := _url_problem(url, parts, port):
        raise ValueError(f"{url!r} {problem}")
    host = parts.hostname or ""
    bracketed = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{bracketed}:{port or _DEFAULT_PORTS[parts.scheme]}"


def _url_problem(url: str, parts: SplitResult, port: int | None) -> str | None:
    if parts.scheme not in _DEFAULT_PORTS or not parts.netloc:
        return "must have the form http://host:port or https://host:port"
    if not url.isprintable():
        return "has control characters"
    if parts.path not in {"", "/"} or "?" in url or "#" in url:
        return "must end after the port: a path, query or fragment has no meaning here"
    if port == 0:
        return "has port 0"
    return None if _is_host(parts.hostname or "") else "has no valid host name"


def _is_host(host: str) -> bool:
    if ":" not in host:
        return _HOST_NAME.fullmatch(host) is not None
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False


def header_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names in lower case; ValueError for one that HTTP does not allow or that is given twice."""
    for name in names:
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no HTTP header name")
    return _without_repeats(name.lower() for name in names)


def _without_repeats(items: Iterable[str]) -> tuple[str, ...]:
    seen: list[str] = []
    for item in items:
        if item in seen:
            raise ValueError(f"{item} is given twice")
        seen.append(item)
    return tuple(seen)


def redis_url(url: SecretStr | None) -> SecretStr | None:
    """The URL as it is; ValueError for one that can't be understood. Its words never quote a password."""
    if url is not None:
        parse(url.get_secret_value())
    return url
