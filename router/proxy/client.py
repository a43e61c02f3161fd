"""The client's side of an exchange, as the exchange sees it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from router.proxy.exchange import Exchange


class Client(Protocol):
    """A client's connection."""

    transport: asyncio.Transport

    @property
    def write_paused(self) -> bool:
        """Whether the client takes its bytes too slowly for more to be written."""

    def exchange_done(self, exchange: Exchange) -> None:
        """The exchange has ended; its answer is written, or cut."""
