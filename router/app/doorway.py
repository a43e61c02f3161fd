"""The door as the settings want it: its rules, its keys, and whose key goes on to the engines."""

from __future__ import annotations

import asyncio

from router.adapters.client_keys import CHECK_S, KeyFile, listed
from router.app.process.open_files import client_connections
from router.app.settings.model import Settings
from router.core.allowance import ClientKey, KeyLimits
from router.proxy.door import Door, DoorRules


class Doorway:
    """Puts a door in order: at the start, when the settings change, and when the key file does."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self._file: KeyFile | None = None
        self._listed: list[ClientKey] = []
        self._asks = False

    def apply(self, settings: Settings) -> None:
        """Take settings over. Raises KeyFileError for a key file that can't be used, with nothing changed."""
        limits = _limits(settings)
        self._file = None if settings.api_keys_file is None else KeyFile(settings.api_keys_file, limits)
        text = "" if settings.api_keys is None else settings.api_keys.get_secret_value()
        self._listed = listed(text, limits)
        self._asks = asks_for_keys(settings)
        self.door.configure(_rules(settings))
        self._hand_over()

    def _hand_over(self) -> None:
        from_file = [] if self._file is None else self._file.keys
        self.door.take_keys([*self._listed, *from_file] if self._asks else None)

    async def watch_forever(self) -> None:
        """Look after the key file until cancelled."""
        while True:
            await asyncio.sleep(CHECK_S)
            await self.look()

    async def look(self) -> None:
        """Take the key file's keys over if they have changed."""
        if self._file is not None and await self._file.look():
            self._hand_over()


def asks_for_keys(settings: Settings) -> bool:
    """Tell whether clients need a key."""
    return settings.api_keys is not None or settings.api_keys_file is not None


def engine_authorization(settings: Settings) -> bytes | None:
    """Return what stands in place of the clients' keys towards engines; empty: nothing, None: they pass.

    A key that opens this door is the router's secret, and no engine's.
    """
    if settings.engine_api_key is not None:
        return b"Bearer " + settings.engine_api_key.get_secret_value().encode()
    return b"" if asks_for_keys(settings) else None


def _limits(settings: Settings) -> KeyLimits:
    return KeyLimits(
        settings.key_requests_per_minute, settings.key_tokens_per_minute, settings.key_concurrent_requests
    )


def _rules(settings: Settings) -> DoorRules:
    return DoorRules(
        max_head_bytes=int(settings.max_head_bytes),
        max_url_bytes=int(settings.max_url_bytes),
        head_timeout_s=settings.head_timeout_s,
        body_timeout_s=settings.body_timeout_s,
        max_connections=client_connections(settings),
        trusted_proxies=settings.trusted_proxy,
        cors_origins=settings.cors_origin,
        tenant_headers=tuple(name.encode("latin-1") for name in settings.tenant_header),
    )
