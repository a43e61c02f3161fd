"""The two requests that are made of a Kubernetes API server: list, and watch."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import httpx
import msgspec

from router.adapters.discovery.kubernetes.cluster import Cluster
from router.adapters.discovery.kubernetes.objects import EndpointSlice, Page, Pod, Status, Thing
from router.adapters.discovery.trouble import Unreadable

T = TypeVar("T", bound=Thing)

PAGE_OBJECTS = 50
"""A page of pods has up to 0.5 MB then, and decoding it holds up streams for 3 ms."""

ANSWER_S = 10.0
"""How long the next bytes of a list, or the beginning of a watch, are waited for."""

LIST_S = 60.0
"""For how long a list may take, all its pages together: as long as the server itself allows."""

MAX_LINE_BYTES = 8 << 20
"""Several times what etcd can store of one object."""

_MAX_ERROR_BYTES = 65_536
_HEADERS = {"accept": "application/json", "accept-encoding": "identity"}


class Expired(Exception):
    """What was asked for is too old for the server: only a new list can tell."""


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """A kind of object."""

    group: str
    """Empty for the core."""
    plural: str
    type: type[T]

    def path(self, namespace: str) -> str:
        """Return where those of a namespace are."""
        root = f"/apis/{self.group}" if self.group else "/api"
        return f"{root}/v1/namespaces/{namespace}/{self.plural}"

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


SLICES = Resource("discovery.k8s.io", "endpointslices", EndpointSlice)
PODS = Resource("", "pods", Pod)


class Api(Generic[T]):
    """Some objects of one kind, in one namespace. Asks through a client that belongs to the caller."""

    def __init__(
        self, client: httpx.AsyncClient, cluster: Cluster, resource: Resource[T], namespace: str, selector: str
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._resource = resource
        self._namespace = namespace
        self._selector = selector

    async def listed(self) -> tuple[list[T], str]:
        """List all objects; return them and the resourceVersion from which to watch. Raises Unreadable."""
        try:
            async with asyncio.timeout(LIST_S):
                return await self._in_pages()
        except TimeoutError:
            raise Unreadable(f"its API server does not end its list within {LIST_S:g} s") from None

    async def _in_pages(self) -> tuple[list[T], str]:
        try:
            return await self._pages({"limit": str(PAGE_OBJECTS)})
        except Expired:  # between two pages
            return await self._whole()

    async def _whole(self) -> tuple[list[T], str]:
        try:
            return await self._pages({})
        except Expired:
            raise Unreadable("its API server answers a list with 410") from None

    async def _pages(self, query: dict[str, str]) -> tuple[list[T], str]:
        objects: list[T] = []
        more: str | None = None
        while True:
            page = await self._page(query | ({"continue": more} if more else {}))
            objects += page.items or ()
            more = page.metadata.continue_
            if not more:
                return objects, page.metadata.resource_version

    async def _page(self, query: dict[str, str]) -> Page[T]:
        async with self._answer("list", query, ANSWER_S) as response:
            try:
                data = await response.aread()
            except httpx.HTTPError as error:
                raise Unreadable(_words(error)) from None
        try:
            return msgspec.json.decode(data, type=Page[self._resource.type])  # type: ignore[name-defined]
        except (msgspec.DecodeError, RecursionError) as error:
            raise Unreadable(f"its API server sends no {self._resource}: {error}") from None

    @contextlib.asynccontextmanager
    async def watch(self, version: str, timeout_s: int, patience_s: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Give the lines that say what has changed since a version, and end them when the server does.

        `patience_s`: for how long nothing may come, within which the server should end after `timeout_s`. Raises
        Expired and Unreadable; reading the lines raises httpx.HTTPError where they are cut off.
        """
        query = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(timeout_s),
        }
        async with self._answer("watch", query, patience_s) as answer, contextlib.aclosing(_lines(answer)) as lines:
            yield lines

    @contextlib.asynccontextmanager
    async def _answer(self, verb: str, query: dict[str, str], patience_s: float) -> AsyncIterator[httpx.Response]:
        response = await self._send(query, patience_s)
        if response.status_code == httpx.codes.UNAUTHORIZED:  # the token was replaced at this very moment
            await response.aclose()
            response = await self._send(query, patience_s)
        try:
            if response.status_code != httpx.codes.OK:
                raise await self._refusal(verb, response)
            yield response
        finally:
            await response.aclose()

    async def _send(self, query: dict[str, str], patience_s: float) -> httpx.Response:
        request = self._client.build_request(
            "GET",
            self._cluster.url + self._resource.path(self._namespace),
            params={"labelSelector": self._selector} | query,
            headers=_HEADERS | {"authorization": f"Bearer {self._cluster.token()}"},
            timeout=httpx.Timeout(ANSWER_S, read=patience_s),
        )
        try:
            return await self._client.send(request, stream=True)
        except (httpx.HTTPError, UnicodeError) as error:
            raise Unreadable(_words(error)) from None

    async def _refusal(self, verb: str, response: httpx.Response) -> Exception:
        status, said = response.status_code, await _message(response)
        if status == httpx.codes.GONE:
            return Expired()
        if status == httpx.codes.FORBIDDEN:
            return Unreadable(
                f"the service account may not {verb} {self._resource} in namespace {self._namespace}: "
                f"it needs the verbs list and watch on them ({said})"
            )
        if status == httpx.codes.UNAUTHORIZED:
            return Unreadable(f"its API server does not accept the token in {self._cluster.folder} ({said})")
        return Unreadable(f"its API server answers {verb} with {status} ({said})", _retry_after_s(response))


async def _lines(response: httpx.Response) -> AsyncGenerator[bytes]:
    """Give whole lines, however they are cut. One that is not ended is not given."""
    rest = bytearray()
    async for part in response.aiter_bytes():
        rest += part
        *lines, last = rest.split(b"\n") if b"\n" in part else (rest,)
        if len(last) > MAX_LINE_BYTES:
            raise httpx.DecodingError(f"a line is longer than {MAX_LINE_BYTES} bytes")
        rest = last
        for line in lines:
            if line.strip():
                yield bytes(line)


async def _message(response: httpx.Response) -> str:
    """Return what the server says of an error, shortened; never raises."""
    data = b""
    with contextlib.suppress(httpx.HTTPError):
        async for part in response.aiter_bytes():
            data += part
            if len(data) > _MAX_ERROR_BYTES:
                break
    try:
        text = msgspec.json.decode(data, type=Status).message or ""
    except (msgspec.DecodeError, RecursionError):
        text = data.decode("utf-8", "replace")
    return " ".join(text.split())[:200] or "it does not say why"


def _retry_after_s(response: httpx.Response) -> float:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 7 else 0.0


def _words(error: Exception) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "its API server does not answer in time"
    return f"its API server can't be reached: {' '.join(str(error).split()) or type(error).__name__}"
