"""A replica as a person writes it: a URL, and what is known of the replica behind a question mark."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, quote, urlsplit

from router.ports import Endpoint

MAX_RANKS = 1024
"""Data-parallel ranks of one engine: as many as the largest published deployments have, several times over."""

_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?")
_DEFAULT_PORTS = {"http": 80, "https": 443}
TRAITS = ("model", "weight", "ranks")
"""Options that say what is known of a replica."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What a person has written of a replica, or of all replicas of a source."""

    models: tuple[str, ...] = ()
    weight: float = 1.0
    ranks: int | None = None
    """Data-parallel ranks of each engine; None for an engine that is one replica."""

    def __str__(self) -> str:
        """As it stands behind a question mark; empty where there is nothing to say."""
        options = [f"model={quote(model, safe='/:')}" for model in self.models]
        options += [f"weight={self.weight:g}"] * (self.weight != 1.0)
        return "&".join([*options, *([] if self.ranks is None else [f"ranks={self.ranks}"])])

    def replicas(self, url: str) -> list[Endpoint]:
        """Return the replicas of the engine there."""
        return expand(Endpoint(url, models=self.models, weight=self.weight), self.ranks)


def written_out(spec: str) -> str:
    """Return a replica in its one full spelling: lower case, port and options. ValueError says what is wrong."""
    url, traits = _read(spec)
    return f"{url}?{traits}" if str(traits) else url


def endpoints(spec: str) -> list[Endpoint]:
    """Return the replicas that a text names: one, or one for each data-parallel rank. ValueError as `written_out`."""
    url, traits = _read(spec)
    return traits.replicas(url)


def expand(endpoint: Endpoint, ranks: int | None) -> list[Endpoint]:
    """Return an engine's replicas: itself, or one for each of its data-parallel ranks."""
    if ranks is None:
        return [endpoint]
    return [endpoint.of_rank(rank) for rank in range(ranks)]


def _read(spec: str) -> tuple[str, Traits]:
    url, options = split_options(spec)
    for name in options:
        if name not in TRAITS:
            raise ValueError(
                f"{quoted(spec)} has the option {name!r}, which no replica has; there are {', '.join(TRAITS)}"
            )
    return replica_url(url), read_traits(options)


def split_options(text: str) -> tuple[str, dict[str, list[str]]]:
    """Return what stands before the question mark, and the options behind it in their order."""
    place, _, query = text.partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise ValueError(f"{quoted(text)}: what follows the ? must have the form name=value&name=value") from None
    options: dict[str, list[str]] = {}
    for name, value in pairs:
        options.setdefault(name, []).append(value)
    return place, options


def quoted(text: str) -> str:
    """Return a text for a message, unless it may hold a password: one stands before an @."""
    return "what has an @" if "@" in text else repr(text)


def single(options: Mapping[str, list[str]], name: str) -> str | None:
    """Return the one value of an option. ValueError where it stands twice."""
    values = options.get(name, [])
    if len(values) > 1:
        raise ValueError(f"{name} is given twice")
    return values[0] if values else None


def read_traits(options: Mapping[str, list[str]]) -> Traits:
    """Return what options say of a replica; those with other names are left alone. ValueError for a wrong value."""
    models = tuple(model.strip() for model in options.get("model", ()))
    if "" in models:
        raise ValueError("model must have a name")
    return Traits(models, read_weight(single(options, "weight") or "1"), read_ranks(single(options, "ranks")))


def read_weight(text: str) -> float:
    """Return a weight. ValueError for what is none."""
    try:
        return checked_weight(float(text))
    except ValueError:
        raise ValueError(f"weight must be a number above 0 and up to 1000, not {text!r}") from None


def checked_weight(weight: float) -> float:
    """Return a weight. ValueError for one out of range."""
    if not 0 < weight <= 1000:
        raise ValueError("weight must be above 0 and up to 1000")
    return weight


def read_ranks(text: str | None) -> int | None:
    """Return a number of data-parallel ranks; None for none. ValueError for what is no such number."""
    if text is None:
        return None
    return checked_ranks(int(text) if text.isascii() and text.isdecimal() else 0)


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
