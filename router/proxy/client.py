"""The client's side of an exchange, as the exchange sees it."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Client(Protocol):
    """A client's connection."""

    transport: asyncio.Transport

    @property
    def write_paused(self) -> bool:
        """Whether the client takes its bytes too slowly for more to be written."""

    def exchange_done(self, exchange: Answered) -> None:
        """The exchange has ended; its answer is written, or cut."""


class Answered(Protocol):
    """An exchange that has ended."""

    @property
    def keep_alive(self) -> bool:
        """Whether the connection may take another request."""
