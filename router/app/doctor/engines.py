"""What can be seen of one engine from outside, all of it read at once."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import Any

from router.app.doctor.asking import Asker, Reply, bearer
from router.app.doctor.page import Page, read_page

SERVER_INFO_S = 10.0
"""Made by running a dozen programs the first time that it is asked for."""

LOOKS = 3
"""Readings of /metrics, each on a connection of its own: where two engines share an address, three in four times both
are seen."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """An engine's address, and what the router says of the replicas there: one for each data-parallel rank."""

    url: str
    rows: tuple[Row, ...] = ()
    """Of /api/fleet; none where the address was given by hand."""

    @property
    def ids(self) -> frozenset[str]:
        """The router's ids of the replicas there."""
        return frozenset(row["id"] for row in self.rows)

    @property
    def name(self) -> str:
        """What it is called in the report."""
        if not self.rows:
            return self.url
        ranks = f", {len(self.rows)} ranks" if len(self.rows) > 1 else ""
        return f"{self.rows[0]['id']} ({self.url}{ranks})"

    @property
    def up(self) -> bool:
        """Whether the router sends requests there."""
        return any(row.get("state") in ("joining", "ready", "suspect") and not row.get("asleep") for row in self.rows)


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A served model."""

    name: str
    max_model_len: int | None
    root: str | None
    """Where its weights are."""
    parent: str | None
    """The base model of an adapter."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine, as it showed itself."""

    place: Place
    health: Reply
    version: str | None
    page: Page | None
    """The last reading of /metrics; None: there is none that can be read."""
    metrics: Reply
    models: tuple[ModelCard, ...]
    listing: Reply
    """The answer to /v1/models."""
    event_sources: dict[str, Any] | None
    """None: this release does not say."""
    server_info: dict[str, Any] | None
    """The configuration; only in development mode."""
    is_router: bool
    """A Warmroute answers there."""
    identities: frozenset[tuple[float, ...]] = field(default_factory=frozenset)
    """Of the engines that answered: one, unless something spreads the connections."""

    @property
    def reachable(self) -> bool:
        """Tell whether anything answers there."""
        return any(reply.status for reply in (self.health, self.metrics, self.listing))

    @property
    def is_vllm(self) -> bool:
        """Tell whether a vLLM answers there."""
        return not self.is_router and self.page is not None and self.page.is_vllm

    @property
    def block_tokens(self) -> int | None:
        """Tokens of a KV block."""
        return whole(self.page.cache.get("block_size")) if self.page else None

    @property
    def kv_tokens(self) -> int | None:
        """Tokens that the KV cache of one rank holds."""
        cache = self.page.cache if self.page else {}
        told = whole(cache.get("kv_cache_size_tokens"))
        blocks, block_tokens = whole(cache.get("num_gpu_blocks")), self.block_tokens
        return told or (blocks * block_tokens if blocks and block_tokens else None)

    @property
    def prefix_caching(self) -> bool | None:
        """Whether it is on; None: it does not say."""
        told = (self.page.cache if self.page else {}).get("enable_prefix_caching")
        return None if told is None else told.lower() == "true"

    @property
    def max_model_len(self) -> int | None:
        """The longest of its models' limits."""
        return max((card.max_model_len for card in self.models if card.max_model_len), default=None)

    @property
    def asleep(self) -> bool:
        """Whether it says that it sleeps, or the router says that it is paused."""
        states = self.page.samples("vllm:engine_sleep_state") if self.page else []
        said = any(labels.get("sleep_state") == "awake" and not value for labels, value in states)
        return said or any(row.get("asleep") for row in self.place.rows)


def whole(text: str | None) -> int | None:
    """Return a positive whole number that a label has; None for anything else."""
    return int(text) if text and text.isdecimal() and int(text) > 0 else None


def release(version: str | None) -> tuple[int, ...] | None:
    """Return the numbers that a version begins with, at least two; None for one that has none."""
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version or "")
    return None if found is None else tuple(int(part or 0) for part in found.groups())


async def look_at(asker: Asker, place: Place, key: str | None) -> Engine:
    """Ask an engine all that it tells without being made to work. `key` is that of engines with --api-key."""
    own = bearer(key)
    asked = [asker.get(place.url + path, own) for path in ("/health", "/version", "/v1/models", "/kv_event_sources")]
    pages = [asker.get(place.url + "/metrics", own) for _ in range(LOOKS)]
    info = asker.get(place.url + "/server_info?config_format=json", own, SERVER_INFO_S)
    replies = await asyncio.gather(*asked, info, *pages)
    health, version, listing, events, told, *metrics = replies
    read = [page for page in (read_page(reply.text) if reply.ok else None for reply in metrics) if page]
    return Engine(
        place=place,
        health=health,
        version=_text(version.told.get("version")) if version.ok else None,
        page=read[-1] if read else None,
        metrics=metrics[-1],
        models=_cards(listing),
        listing=listing,
        event_sources=events.told if events.ok else None,
        server_info=told.told if told.ok and "vllm_config" in told.told else None,
        is_router=any(name.startswith("x-warmroute-") for reply in replies for name in reply.headers),
        identities=frozenset(page.identity for page in read if page.identity),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _cards(listing: Reply) -> tuple[ModelCard, ...]:
    rows = listing.told.get("data") if listing.ok else None
    found = [row for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)] if rows else []
    return tuple(_card(row) for row in found)


def _card(row: dict[str, Any]) -> ModelCard:
    limit = row.get("max_model_len")
    return ModelCard(
        row["id"], limit if isinstance(limit, int) else None, _text(row.get("root")), _text(row.get("parent"))
    )
