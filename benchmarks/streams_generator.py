"""Both ends of a router in one process: engines that send events at a fixed pace, and the clients that get them.

One process, since an event then carries the time at which it was written by the very clock it is read by, and no second
process takes a share of the core. Bare sockets and epoll, since asyncio would take several times as long for an event.
"""

import array
import select
import socket
import time
from collections.abc import Callable, Iterable
from itertools import cycle, islice

from benchmarks.backend import COMPLETION, EVENT, STREAM, STREAM_END, STREAM_HEAD, Requests, plain_answer, sized
from benchmarks.load import DONE, chat_body, post

MARK = b'"content":"'
STAMP_BYTES = 20
STAMPED = len(MARK) + STAMP_BYTES
_BEFORE, _, _AFTER = EVENT.partition(b"%020d")
CHUNK_START = b"%x\r\n" % len(EVENT % 0) + _BEFORE
CHUNK_END = _AFTER + b"\r\n"
EVENT_END = b"\n\n\r\n"
READ_BYTES = 16_384
BATCH = 32
"""Events written before what has arrived is read: some 0.3 ms, by which a reading may be late."""
IDLE_S = 0.001
SEND_BUFFER_BYTES = 1 << 18
"""A page of metrics fits in, so that writing one never waits."""
OPENING = 32
"""Requests under way at once while streams are opened: fewer than any router queues."""
PHASE_DEADLINE_S = 60.0


def event() -> bytes:
    """One that says when it was written."""
    return b"%b%020d%b" % (CHUNK_START, time.monotonic_ns(), CHUNK_END)


class Upstream(Requests):
    """A connection to an engine. Once a stream has begun its pace is set by the generator."""

    def __init__(self, sock: socket.socket, begin: "Callable[[Upstream], None]") -> None:
        super().__init__()
        self.sock, self.send, self.begin = sock, sock.send, begin
        self.streaming, self.rest = False, b""

    def readable(self) -> bool:
        """Take what came; False when the peer has left."""
        try:
            data = self.sock.recv(READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.data_received(data)
        return bool(data)

    def answer(self, head: bytes, body: bytes) -> None:
        plain = plain_answer(head)
        if plain is None and STREAM.search(body):
            self.write(STREAM_HEAD)
            self.begin(self)
        else:
            self.write(plain or sized(COMPLETION))

    def write(self, data: bytes) -> None:
        """Write what was left and this; what does not go out now is left for the next time."""
        if self.rest:
            data, self.rest = self.rest + data, b""
        try:
            self.rest = data[self.send(data) :]
        except BlockingIOError:
            self.rest = data
        except OSError:
            self.rest = b""  # it closed; reading says so, too


class Client:
    """A client of one stream; it looks for nothing but the time stamps and the end."""

    __slots__ = ("counted", "done", "events", "failed", "note", "recv", "sock", "tail")

    def __init__(self, sock: socket.socket, note: Callable[[int], None]) -> None:
        self.sock, self.recv, self.note = sock, sock.recv, note
        self.tail, self.events, self.done, self.failed = b"", 0, False, False

    def readable(self, ended: bool) -> bool:
        """Take all that came; `ended`: the peer has left. False when there will be no more."""
        while True:
            try:
                data = self.recv(READ_BYTES)
            except BlockingIOError:
                return True
            except OSError:
                data = b""
            if not data:
                self.failed = not self.done
                return False
            self.take(data, time.monotonic_ns())
            if len(data) < READ_BYTES and not ended:
                return True

    def take(self, data: bytes, now_ns: int) -> None:
        if self.tail:
            data = self.tail + data
        end, at = 0, data.find(MARK)
        while at >= 0 and at + STAMPED <= len(data):
            end = at + STAMPED
            self.events += 1
            self.note(now_ns - int(data[end - STAMP_BYTES : end]))
            at = data.find(MARK, end)
        # What may be half an event, or half the stream's end, is looked at with what follows.
        self.tail = b"" if data.endswith(EVENT_END) else data[max(end, len(data) - STAMPED + 1) :]
        if DONE in data:
            self.done = True


class Generator:
    """Listens as so many engines; `open` opens streams through a port, `run` keeps them going, `end` ends them all."""

    def __init__(self, engines: int) -> None:
        self.epoll = select.epoll()
        self.listeners = {one.fileno(): one for one in (self._listen() for _ in range(engines))}
        self.upstreams: dict[int, Upstream] = {}
        self.clients: dict[int, Client] = {}
        self.streams: list[Upstream] = []
        self.delays_ns, self.late_s = array.array("q"), array.array("d")
        self.sent = self.blocked = self.lost = 0

    def _listen(self) -> socket.socket:
        one = socket.create_server(("127.0.0.1", 0), backlog=2048)
        one.setblocking(False)
        self.epoll.register(one.fileno(), select.EPOLLIN)
        return one

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{one.getsockname()[1]}" for one in self.listeners.values()]

    def poll(self, timeout_s: float) -> None:
        """Read what has arrived, everywhere."""
        clients = self.clients
        for fd, what in self.epoll.poll(timeout_s):
            if fd in clients:
                if not clients[fd].readable(what != select.EPOLLIN):
                    self._drop_client(fd)
            elif fd in self.upstreams:
                if not self.upstreams[fd].readable():
                    self._drop_upstream(fd)
            else:
                self._accept(self.listeners[fd])

    def _accept(self, listener: socket.socket) -> None:
        try:
            sock, _ = listener.accept()
        except BlockingIOError:
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self.upstreams[sock.fileno()] = Upstream(sock, self._begin)
        self.epoll.register(sock.fileno(), select.EPOLLIN)

    def _begin(self, upstream: Upstream) -> None:
        upstream.streaming = True
        self.streams.append(upstream)
        self._send([upstream])

    def _drop_upstream(self, fd: int) -> None:
        gone = self.upstreams.pop(fd)
        if gone.streaming:
            gone.streaming = False
            self.lost += 1
        self.epoll.unregister(fd)
        gone.sock.close()

    def _drop_client(self, fd: int) -> None:
        self.epoll.unregister(fd)
        self.clients[fd].sock.close()

    def open(self, port: int, count: int, body_bytes: int) -> int:
        """Open so many streams, each with a prompt of its own; return how many have had their first event."""
        filler, opened = "x y z w " * (body_bytes // 8), list[Client]()
        until_s = time.monotonic() + PHASE_DEADLINE_S
        while time.monotonic() < until_s:
            waiting = sum(not one.events for one in opened[-OPENING * 4 :])
            for _ in range(min(OPENING - waiting, count - len(opened))):
                opened.append(self._connect(port, post(chat_body(f"{len(opened)} {filler}", True))))
            if len(opened) == count and all(one.events or one.failed for one in opened):
                break
            self.poll(IDLE_S)
        return sum(bool(one.events) and not one.failed for one in opened)

    def _connect(self, port: int, request: bytes) -> Client:
        sock = socket.create_connection(("127.0.0.1", port), PHASE_DEADLINE_S)
        sock.sendall(request)
        sock.setblocking(False)
        client = self.clients[sock.fileno()] = Client(sock, self.delays_ns.append)
        # Edge-triggered: the kernel need not look again at what has been read.
        self.epoll.register(sock.fileno(), select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)
        return client

    def run(self, seconds: float, events_per_s: float) -> None:
        """So many events a second on each open stream, spread evenly; late ones follow as fast as they can."""
        del self.delays_ns[:], self.late_s[:]
        rate_per_s, ring, started_s, sent = events_per_s * len(self.streams), cycle(self.streams), time.monotonic(), 0
        while (elapsed_s := time.monotonic() - started_s) < seconds and ring:
            due = int(elapsed_s * rate_per_s) - sent
            self.late_s.append(due / rate_per_s)
            self._send(islice(ring, min(due, BATCH)))
            sent += min(due, BATCH)
            self.poll(0 if due > BATCH else IDLE_S)

    def _send(self, streams: Iterable[Upstream]) -> None:
        """Write an event on each."""
        for stream in streams:
            if stream.rest:
                self.blocked += 1
                stream.write(b"")
            elif stream.streaming:
                self.sent += 1
                stream.write(event())

    def end(self) -> int:
        """End all streams as an engine does, and return how many clients saw no proper end."""
        for stream in self.streams:
            if stream.streaming:
                stream.streaming = False
                stream.write(STREAM_END)
        until_s = time.monotonic() + PHASE_DEADLINE_S
        while time.monotonic() < until_s and not all(one.done or one.failed for one in self.clients.values()):
            self.poll(IDLE_S)
            for stream in self.streams:
                if stream.rest:
                    stream.write(b"")
        return sum(not one.done for one in self.clients.values())

    @property
    def received(self) -> int:
        return sum(one.events for one in self.clients.values())

    def close(self) -> None:
        ends = [one.sock for one in self.clients.values()] + [one.sock for one in self.upstreams.values()]
        for sock in (*ends, *self.listeners.values()):
            sock.close()
        self.epoll.close()
