"""A replica as a person writes it: a URL, and what is known of the replica behind a question mark."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import SplitResult, parse_qsl, quote, urlsplit

from router.ports import Endpoint

MAX_RANKS = 1024
"""Data-parallel ranks of one engine: as many as the largest published deployments have, several times over."""

_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_OPTIONS = ("model", "weight", "ranks")


def written_out(spec: str) -> str:
    """Return a replica in its one full spelling: lower case, port and options. ValueError says what is wrong."""
    url, models, weight, ranks = _read(spec)
    options = [f"model={quote(model, safe='/:')}" for model in models]
    options += [f"weight={weight:g}"] * (weight != 1.0) + [f"ranks={ranks}"] * (ranks is not None)
    return url + ("?" + "&".join(options) if options else "")


def endpoints(spec: str) -> list[Endpoint]:
    """Return the replicas that a text names: one, or one for each data-parallel rank. ValueError as `written_out`."""
    url, models, weight, ranks = _read(spec)
    return expand(Endpoint(url, models=models, weight=weight), ranks)


def expand(endpoint: Endpoint, ranks: int | None) -> list[Endpoint]:
    """Return an engine's replicas: itself, or one for each of its data-parallel ranks."""
    if ranks is None:
        return [endpoint]
    return [endpoint.of_rank(rank) for rank in range(ranks)]


def _read(spec: str) -> tuple[str, tuple[str, ...], float, int | None]:
    url, _, query = spec.partition("?")
    try:
        options = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise ValueError(f"{spec!r}: what follows the ? must have the form name=value&name=value") from None
    for name, _ in options:
        if name not in _OPTIONS:
            raise ValueError(f"{spec!r}: {name!r} is no option of a replica: {', '.join(_OPTIONS)}")
    single = dict(options)
    models = tuple(value for name, value in options if name == "model")
    return replica_url(url), models, _weight(single), _ranks(single)


def _weight(options: Mapping[str, str]) -> float:
    text = options.get("weight", "1")
    try:
        return checked_weight(float(text))
    except ValueError:
        raise ValueError(f"weight must be a number above 0 and up to 1000, not {text!r}") from None


def checked_weight(weight: float) -> float:
    """Return a weight. ValueError for one out of range."""
    if not 0 < weight <= 1000:
        raise ValueError("weight must be above 0 and up to 1000")
    return weight


def _ranks(options: Mapping[str, str]) -> int | None:
    text = options.get("ranks")
    if text is None:
        return None
    return checked_ranks(int(text) if text.isdecimal() else 0)


def checked_ranks(ranks: int) -> int:
    """Return a number of data-parallel ranks. ValueError for one out of range."""
    if not 1 <= ranks <= MAX_RANKS:
        raise ValueError(f"ranks must be a number from 1 to {MAX_RANKS}")
    return ranks


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
