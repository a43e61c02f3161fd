"""Asks over HTTP, each question with a time-out of its own. Failures are answers too: a dead replica stops nobody."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

READ_S = 5.0
"""A page of a healthy server comes within milliseconds; one long prompt can hold vLLM's HTTP server up for a second."""

MAX_BYTES = 4 << 20
"""A vLLM's /metrics has 50 to 70 kB, with 16 data-parallel ranks under 1 MB."""

AT_ONCE = 32
"""Questions under way together."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, or why there is none."""

    status: int = 0
    """0: there is no answer."""
    headers: httpx.Headers = field(default_factory=httpx.Headers)
    body: bytes = b""
    failure: str = ""
    refused: bool = False
    """No connection could be made."""

    @property
    def ok(self) -> bool:
        """Tell whether it is a 2xx answer."""
        return 200 <= self.status < 300

    def json(self) -> Any:
        """Return the decoded body; None where it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    @property
    def told(self) -> dict[str, Any]:
        """The body where it is a JSON object, else an empty one."""
        found = self.json()
        return found if isinstance(found, dict) else {}

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")

    @property
    def outcome(self) -> str:
        """What came, in a few words that quote nothing of the body but an error's code."""
        if not self.status:
            return self.failure
        error = self.told.get("error")
        code = error.get("code") if isinstance(error, dict) else None
        return f"{self.status} {code}" if isinstance(code, str) else str(self.status)


class Asker:
    """Asks any server. Each question has a connection of its own, so that a balancer in between shows."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._room = asyncio.Semaphore(AT_ONCE)

    async def get(self, url: str, headers: Mapping[str, str] | None = None, limit_s: float = READ_S) -> Reply:
        """Ask for a page."""
        return await self.send("GET", url, limit_s, headers)

    async def post(self, url: str, body: Any, headers: Mapping[str, str], limit_s: float) -> Reply:
        """Send JSON."""
        return await self.send("POST", url, limit_s, headers, body)

    async def send(
        self, method: str, url: str, limit_s: float, headers: Mapping[str, str] | None = None, body: Any = None
    ) -> Reply:
        """Send a request and read the whole answer within `limit_s`."""
        try:
            async with self._room, asyncio.timeout(limit_s), self.stream(method, url, headers, body) as response:
                read = bytearray()
                async for part in response.aiter_bytes():
                    read += part
                    if len(read) > MAX_BYTES:
                        return Reply(failure=f"an answer of more than {MAX_BYTES >> 20} MiB")
                return Reply(response.status_code, response.headers, bytes(read))
        except (TimeoutError, httpx.TimeoutException):
            return Reply(failure=f"no answer within {limit_s:g} s")
        except httpx.ConnectError as error:
            return Reply(failure=_cause(error), refused=True)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            return Reply(failure=_cause(error))

    @asynccontextmanager
    async def stream(
        self, method: str, url: str, headers: Mapping[str, str] | None, body: Any
    ) -> AsyncIterator[httpx.Response]:
        """Send a request and give the answer as it begins. Raises what httpx raises."""
        async with self._client.stream(method, url, headers=headers, json=body) as response:
            yield response


def _cause(error: Exception) -> str:
    """Return one line about a failure, without the address that it may repeat."""
    text = str(error)
    for known, words in (("Name or service", "no such host"), ("CERTIFICATE", "its certificate is not trusted")):
        if known in text:
            return words
    return {"All connection attempts failed": "the connection is refused"}.get(text) or type(error).__name__


@asynccontextmanager
async def asking() -> AsyncIterator[Asker]:
    """Give an asker whose connections end with the block. Certificates are checked against the system's."""
    async with httpx.AsyncClient(
        timeout=httpx.Timeout(None, connect=READ_S),
        limits=httpx.Limits(max_keepalive_connections=0, max_connections=None),
        verify=ssl.create_default_context(),
        trust_env=False,
    ) as client:
        yield Asker(client)


def bearer(key: str | None) -> dict[str, str]:
    """Return the header that carries a key; none without one."""
    return {"authorization": f"Bearer {key}"} if key else {}
