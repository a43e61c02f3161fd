"""An API server of Kubernetes, as far as discovery needs one: real sockets, the real protocol, faults on request.

It lists (in pages) and watches pods and EndpointSlices by label selector, and keeps a history of changes until it is
compacted, as etcd does. kubectl can talk to it too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Self
from urllib.parse import parse_qs, urlsplit

from tests.rig.client import DEADLINE_S
from tests.rig.kubernetes_words import KINDS, RESOURCES, Change, Object, bookmark, line, selects, status

_PATH = re.compile(r"/(?:api|apis/(?P<group>[\w.]+))/v1/namespaces/(?P<namespace>[\w-]+)/(?P<plural>\w+)")
_PIECE_BYTES = 53
"""Lines are sent in chunks of this size: nothing says that chunks end where lines do."""


@dataclass
class Asked:
    """One request as it came."""

    verb: str
    group: str
    plural: str
    namespace: str
    query: dict[str, str]
    token: str


@dataclass
class Refusal:
    """An answer in place of the right one."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    verb: str | None = None
    """Refuses only this one; None for any."""


class Watch:
    """One watch that is open."""

    def __init__(self, asked: Asked) -> None:
        self.plural, self.namespace = asked.plural, asked.namespace
        self.selector = asked.query.get("labelSelector", "")
        self.bookmarks = asked.query.get("allowWatchBookmarks") == "true"
        self.ends_s = asyncio.get_running_loop().time() + int(asked.query.get("timeoutSeconds", "1800"))
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        """None ends it as the server's time-out does."""
        self.cut = False
        """It ends, after what is in `lines`, as a connection does that dies."""

    def tell(self, change: Change) -> None:
        if event := change.event(self.plural, self.namespace, self.selector):
            self.lines.put_nowait(event)


class FakeKubernetes:
    """Changes are made by `put` and `delete`; clients see them as they would in a cluster."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._objects: dict[tuple[str, str, str], Object] = {}
        self._history: list[Change] = []
        self._version = 100
        self._compacted = 0
        self._pages: dict[str, list[Object]] = {}
        self._noted = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0
        self.watches: list[Watch] = []
        self.asked: list[Asked] = []
        self.tokens: set[str] | None = None
        """Those that are accepted; None accepts any."""
        self.refusals: deque[Refusal] = deque()
        """Given to the next requests that they fit."""
        self.forbidden: set[str] = set()
        """Verbs that no one may use."""
        self.silent = False
        """Watches are told nothing, and don't end when their time is over."""
        self.brief = False
        """Watches end, properly, when they have hardly begun."""
        self.late_pages = 0
        """So many times, a list's next page is asked for too late."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    # What happens in the cluster

    def put(self, plural: str, thing: Object, *, unseen: bool = False) -> None:
        """Create or change an object. `unseen`: watches are not told, as if the event had been lost."""
        meta = thing["metadata"]
        key = (plural, meta["namespace"], meta["name"])
        before, (api_version, kind) = self._objects.get(key), KINDS[plural]
        now = {"apiVersion": api_version, "kind": kind, **thing, "metadata": meta | self._next_version()}
        self._objects[key] = now
        self._happened(Change(self._version, plural, before, now), unseen)

    def delete(self, plural: str, name: str, namespace: str = "default", *, unseen: bool = False) -> None:
        """Remove an object. `unseen` as in `put`."""
        gone = self._objects.pop((plural, namespace, name))
        last = gone | {"metadata": gone["metadata"] | self._next_version()}
        self._happened(Change(self._version, plural, gone, last, deleted=True), unseen)

    def compact(self) -> None:
        """Forget the history: whoever wants to go on from before has to list anew."""
        self._next_version()
        self._compacted = self._version
        self._history.clear()

    def _next_version(self) -> Object:
        self._version += 1
        return {"resourceVersion": str(self._version)}

    def _happened(self, change: Change, unseen: bool) -> None:
        self._history.append(change)
        for watch in [] if unseen or self.silent else self.watches:
            watch.tell(change)

    # What happens to watches

    def bookmark(self) -> None:
        """Send each watch that wants some the present version."""
        for watch in self.watches:
            if watch.bookmarks:
                watch.lines.put_nowait(bookmark(watch.plural, self._version))

    def send(self, text: bytes | None) -> None:
        """Send each watch these bytes as they are; None ends it properly."""
        for watch in self.watches:
            watch.lines.put_nowait(text)

    def expire(self) -> None:
        """Tell each watch that its version is too old, and end it."""
        self.send(line({"type": "ERROR", "object": status(410, "Expired", "too old resource version")}))
        self.send(None)

    def cut(self, rest: bytes = b"") -> None:
        """Cut each watch's connection, after these bytes."""
        for watch in self.watches:
            watch.cut = True
        self.send(rest)

    # What a test waits for

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for a condition on what was asked and what is watched."""
        async with asyncio.timeout(DEADLINE_S), self._noted:
            await self._noted.wait_for(holds)

    async def watched(self, times: int = 1) -> None:
        """Wait until watches were begun so many times in all, and the last one is open."""
        await self.until(lambda: self.count("watch") >= times and bool(self.watches))

    def count(self, verb: str) -> int:
        """How often something was asked for; the pages of a list count as one."""
        return sum(each.verb == verb and "continue" not in each.query for each in self.asked)

    # Inside

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client left, or the test is over
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether another one may follow."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
        parts = urlsplit(target)
        found = _PATH.fullmatch(parts.path)
        if found is None or method != "GET":
            about = RESOURCES.get(parts.path)
            _send(writer, 200 if about else 404, about or status(404, "NotFound", "there is no such path"))
            return True
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        verb = "watch" if query.get("watch") in ("true", "1") else "list"
        token = headers.get("authorization", "").removeprefix("Bearer ")
        asked = Asked(verb, found["group"] or "", found["plural"], found["namespace"], query, token)
        refusal = self._refused(asked)
        if refusal is None and verb == "watch":
            await self._watch(asked, reader, writer)
            return False
        _send(writer, *(refusal or self._list(asked)))
        await self._note(asked)
        return True

    async def _note(self, asked: Asked | None = None) -> None:
        async with self._noted:
            self.asked += [] if asked is None else [asked]
            self._noted.notify_all()

    def _refused(self, asked: Asked) -> tuple[int, Object, dict[str, str]] | None:
        if self.tokens is not None and asked.token not in self.tokens:
            return 401, status(401, "Unauthorized", "Unauthorized"), {}
        if asked.verb in self.forbidden:
            words = f'User "system:serviceaccount:default:warmroute" cannot {asked.verb} resource "{asked.plural}"'
            return 403, status(403, "Forbidden", words), {}
        if self.refusals and self.refusals[0].verb in (None, asked.verb):
            refusal = self.refusals.popleft()
            return refusal.status, status(refusal.status, "Reason", "not now"), refusal.headers
        if asked.verb == "watch" and int(asked.query["resourceVersion"]) < self._compacted:
            return 410, status(410, "Expired", "too old resource version"), {}
        return None

    def _list(self, asked: Asked) -> tuple[int, Object, dict[str, str]]:
        more, limit = asked.query.get("continue"), int(asked.query.get("limit", "0"))
        if more is not None and self.late_pages:
            self.late_pages -= 1
            return 410, status(410, "Expired", "the provided continue parameter is too old"), {}
        items = self._pages.pop(more) if more is not None else list(self._matching(asked))
        meta: Object = {"resourceVersion": str(self._version)}
        if limit and len(items) > limit:
            meta |= {"continue": f"page-{len(self.asked)}", "remainingItemCount": len(items) - limit}
            self._pages[meta["continue"]] = items[limit:]
            items = items[:limit]
        api_version, kind = KINDS[asked.plural]
        return 200, {"kind": f"{kind}List", "apiVersion": api_version, "metadata": meta, "items": items}, {}

    def _matching(self, asked: Asked) -> Iterator[Object]:
        for (plural, namespace, _), thing in sorted(self._objects.items(), key=lambda item: item[0]):
            here = (plural, namespace) == (asked.plural, asked.namespace)
            if here and selects(asked.query.get("labelSelector", ""), thing):
                yield thing

    async def _watch(self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        watch = Watch(asked)
        for change in self._history:
            if change.version > int(asked.query["resourceVersion"]):
                watch.tell(change)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        self.watches.append(watch)
        if self.brief:
            watch.lines.put_nowait(None)
        await self._note(asked)
        left = asyncio.ensure_future(reader.read(1))  # a client that watches sends nothing: it has gone
        try:
            async with contextlib.aclosing(self._told(watch, left)) as pieces:
                async for piece in pieces:
                    writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                    await writer.drain()
            if not watch.cut:
                writer.write(b"0\r\n\r\n")
        finally:
            left.cancel()
            self.watches.remove(watch)
        await asyncio.gather(left, return_exceptions=True)
        await self._note()

    async def _told(self, watch: Watch, left: asyncio.Future[bytes]) -> AsyncGenerator[bytes]:
        """What a watch is sent, in pieces, until it ends."""
        while not left.done():
            coming = asyncio.ensure_future(watch.lines.get())
            left_s = max(0.0, watch.ends_s - asyncio.get_running_loop().time())
            either: list[asyncio.Future[bytes | None] | asyncio.Future[bytes]] = [coming, left]
            await asyncio.wait(either, timeout=None if self.silent else left_s, return_when="FIRST_COMPLETED")
            if not coming.done():
                coming.cancel()
                if self.silent:
                    continue
                return
            text = coming.result()
            if text is None:
                return
            size = max(_PIECE_BYTES, len(text) // 1000)
            for start in range(0, len(text), size):
                yield text[start : start + size]
            if watch.cut:
                return


def _send(writer: asyncio.StreamWriter, code: int, body: Object, headers: dict[str, str] | None = None) -> None:
    data = json.dumps(body).encode()
    lines = {"content-type": "application/json", "content-length": str(len(data)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    writer.write(f"HTTP/1.1 {code} {HTTPStatus(code).phrase}\r\n{head}\r\n".encode() + data)
