"""Asks the admin port of a router, and says in one line what is wrong where it does not answer."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Iterator
from typing import Any, TypeVar

import httpx
import msgspec

from router.app.settings.sources import ConfigError, variable_of
from router.app.terminal.figures import DecisionRow, Overview
from router.app.terminal.numbers import plain

DEFAULT_URL = "http://127.0.0.1:9090"
TOKEN_VARIABLE = variable_of("admin_token")
ANSWER_S = 5.0
"""An admin port answers within milliseconds; one that takes this long is as good as away."""

_NO_ADMIN_PORT = "not the admin port of a router"

Answered = TypeVar("Answered")


class AdminError(ConfigError):
    """A router could not be asked; the message is one line."""

    def __init__(self, label: str, why: str) -> None:
        super().__init__(f"{label}: {why}")
        self.why = why


class AwayError(AdminError):
    """Nobody answers now; it may be otherwise in a moment."""


class RefusedError(AdminError):
    """What answers says no, or is no admin port of a router."""


class Admin:
    """The admin port at one URL."""

    def __init__(self, url: str) -> None:
        """`url` may lack its scheme. ConfigError where it is none."""
        self.url = _read_url(url)
        self.label = str(self.url.copy_with(username=None, password=None, query=None)).rstrip("/")
        """The URL without what may be secret in it."""
        self._token = os.environ.get(TOKEN_VARIABLE, "")
        headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        self._client = httpx.AsyncClient(
            base_url=self.url, headers=headers, timeout=ANSWER_S, trust_env=False,
            verify=ssl.create_default_context(),  # the system's authorities, as everywhere else here
        )  # fmt: skip

    async def close(self) -> None:
        """Close its connections."""
        await self._client.aclose()

    async def overview(self) -> Overview:
        """Return what /api/overview answers."""
        return self._decode(await self._ask("GET", "api/overview"), Overview)

    async def overview_json(self) -> Any:
        """Return the same with all that is in it."""
        answer = await self._ask("GET", "api/overview")
        self._decode(answer, Overview)
        return json.loads(answer.content)

    async def told(self, path: str, kind: type[Answered], **params: str) -> Answered:
        """Return what another question is answered, such as /api/history, as far as `kind` asks for it."""
        return self._decode(await self._ask("GET", path, params=params), kind)

    async def decisions(self, limit: int) -> list[DecisionRow]:
        """Return the last decisions, newest first."""
        return self._decode(await self._ask("GET", "api/decisions", params={"limit": limit}), list[DecisionRow])

    async def explain(self, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        """Return what /api/explain answers for a request to `path`."""
        sent = {"content-type": "application/json"} | headers
        return (await self._ask("POST", "api/explain", params={"path": path}, content=body, headers=sent)).content

    async def _ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            answer = await self._client.request(method, path, **request)
        except httpx.TimeoutException:
            raise AwayError(self.label, f"no answer within {ANSWER_S:g} s") from None
        except httpx.TransportError as error:
            raise AwayError(self.label, _cause(error)) from None
        if answer.status_code == 200:
            return answer
        raise RefusedError(self.label, self._refusal(answer, path))

    def _refusal(self, answer: httpx.Response, path: str) -> str:
        """Return why, as the router says it, or what to do about it."""
        message, param = _error(answer.content)
        if answer.status_code == 401:
            cure = f"{TOKEN_VARIABLE} has another one" if self._token else f"set {TOKEN_VARIABLE}"
            return f"the admin port wants its token: {cure}"
        if message is None or (answer.status_code == 404 and param is None):  # the admin API says what it does not find
            return f"{_NO_ADMIN_PORT}: /{path} is answered {answer.status_code}"
        return message

    def _decode(self, answer: httpx.Response, kind: type[Answered]) -> Answered:
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except msgspec.MsgspecError as error:
            why = f"{_NO_ADMIN_PORT}: what {answer.request.url.path} answers can't be read"
            raise RefusedError(self.label, f"{why} ({plain(str(error))})") from None


def _read_url(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text if "://" in text else f"http://{text}")
    except (httpx.InvalidURL, UnicodeError) as error:
        raise ConfigError(f"{plain(text)} is no URL: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(f"{plain(text)} is no URL of an admin port: it has the form {DEFAULT_URL}")
    return url.copy_with(fragment=None)


def _error(content: bytes) -> tuple[str | None, str | None]:
    """Return message and parameter of an error in OpenAI's form; Nones for anything else."""
    try:
        error = json.loads(content)["error"]
        return plain(str(error["message"])), error["param"]
    except (ValueError, LookupError, TypeError):
        return None, None


def _cause(error: BaseException) -> str:
    """Return what the operating system says was wrong, which httpx has several layers above."""
    for below in _chain(error):
        if isinstance(below, ssl.SSLError):  # an OSError too, with a number of another list
            reason = getattr(below, "verify_message", "") or (below.reason or "TLS failed").replace("_", " ")
            return f"no TLS with it: {plain(reason).lower()}"
        if isinstance(below, OSError) and below.errno is not None:
            known = os.strerror(below.errno) if below.errno > 0 else below.strerror  # asyncio puts its own words there
            return str(known).lower()
    return plain(str(error)) or type(error).__name__


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Give an exception and what it came from, the group's first where there are several."""
    at: BaseException | None = error
    while at is not None:
        yield at
        at = at.exceptions[0] if isinstance(at, BaseExceptionGroup) else at.__cause__ or at.__context__
