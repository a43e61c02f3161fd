"""Where engines publish their KV cache events: as they say themselves, or as it is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

MAX_PORT = 65_535


class Source(NamedTuple):
    """Where one engine publishes."""

    events: str | None
    """Endpoint to connect to; None: the engine connects to ours."""
    replay: str | None
    """Endpoint that what was missed can be asked of; None: there is none."""
    topic: bytes
    """What its messages begin with. Where the engine connects to us, nothing else tells whose they are."""


class SourceError(ValueError):
    """What is said of a source can't be used."""


def listed_sources(listing: Any, host: str) -> dict[int, Source]:
    """Read the answer of /kv_event_sources: the sources of an engine on `host` by data-parallel rank.

    Raises:
        SourceError: it is no such answer.
    """
    if not isinstance(listing, Mapping):
        raise SourceError("/kv_event_sources answers no object")
    try:
        return {
            int(rank): _listed(config, host)
            for rank, config in listing.items()
            if config.get("enable_kv_cache_events") and config.get("publisher") == "zmq"
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SourceError(f"/kv_event_sources answers {listing!r}") from error


def _listed(config: Mapping[str, Any], host: str) -> Source:
    events, replay = str(config["endpoint"]), config.get("replay_endpoint")
    topic = str(config.get("topic") or "").encode()
    return Source(_reachable(events, host) if _is_bound(events) else None, _replay(replay, host), topic)


def _is_bound(endpoint: str) -> bool:
    """Tell whether vLLM binds an endpoint (0.32: distributed/kv_events.py); else it connects there."""
    return "*" in endpoint or "::" in endpoint or endpoint.startswith(("ipc://", "inproc://"))


def _replay(endpoint: str | None, host: str) -> str | None:
    return None if endpoint is None else _reachable(str(endpoint), host)


def _reachable(endpoint: str, host: str) -> str:
    """Put the engine's host in the place of a wildcard."""
    if not endpoint.startswith("tcp://"):
        return endpoint
    address, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    shown = f"[{host}]" if ":" in host else host
    return f"tcp://{shown if address in _WILDCARDS else address}:{port}"


_WILDCARDS = frozenset({"*", "0.0.0.0", "::", "[::]"})  # noqa: S104 - compared with, never bound


class Given(NamedTuple):
    """A source as it is written in the settings: [URL=]tcp://HOST:PORT[?replay=PORT&topic=TEXT]."""

    url: str | None
    """The engine that it is of; None: any that has none of its own."""
    host: str
    port: int
    replay: int | None
    topic: str

    def of_rank(self, rank: int, host: str) -> Source:
        """Return the source of one data-parallel rank: vLLM adds the rank to the ports. `host` stands for `*`."""
        address = f"tcp://{self.host}:"
        replay = None if self.replay is None else _reachable(f"{address}{self.replay + rank}", host)
        return Source(_reachable(f"{address}{self.port + rank}", host), replay, self.topic.encode())


def read_given(text: str) -> Given:
    """Read a source as it is given.

    Raises:
        SourceError: with what is wrong.
    """
    url, _, endpoint = text.rpartition("=tcp://")
    endpoint = "tcp://" + endpoint.removeprefix("tcp://")
    parts = urlsplit(endpoint.replace("*", "wildcard.invalid", 1))
    query = parse_qs(parts.query, keep_blank_values=True)
    try:
        port, replay = parts.port, int(query["replay"][0]) if "replay" in query else None
    except ValueError:
        raise SourceError(f"{text}: a port is a number up to {MAX_PORT}") from None
    if not parts.hostname or not port or set(query) - {"replay", "topic"}:
        raise SourceError(f"{text}: expected [URL=]tcp://HOST:PORT[?replay=PORT&topic=TEXT]")
    if replay is not None and not 0 < replay <= MAX_PORT:
        raise SourceError(f"{text}: a port is a number up to {MAX_PORT}")
    host = "*" if parts.hostname == "wildcard.invalid" else parts.hostname
    shown = f"[{host}]" if ":" in host else host
    return Given(url or None, shown, port, replay, query.get("topic", [""])[0])
