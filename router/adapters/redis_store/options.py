"""How the store is used."""

from __future__ import annotations

from dataclasses import dataclass

from router.adapters.redis_store.address import Address


@dataclass(frozen=True, slots=True)
class Options:
    """What the settings say of it."""

    address: Address
    prefix: str = "warmroute"
    secret: str | None = None
    deadline_s: float = 0.005
    ttl_s: int = 3600
