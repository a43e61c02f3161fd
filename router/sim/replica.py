"""One simulated vLLM on a socket, with faults that can be switched while it runs."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from router.sim.api import Call
from router.sim.connection import Connection, Ongoing
from router.sim.engine import Engine
from router.sim.errors import ENGINE_DEAD, openai_error
from router.sim.faults import CONTROL_PATH, Fault, FaultBoard, FaultKind, listing, read_order
from router.sim.options import SimOptions
from router.sim.record import Arrival, Changes, Header
from router.sim.reply import Reply, server_headers
from router.sim.routes import answer, handler_label
from router.sim.state import ReplicaState, random_id

_BACKLOG = 2048
"""As uvicorn's default."""
_DEATH_S = 0.2
"""From the engine's end to the server's, as seen with vLLM."""
_STOP_S = 5.0
"""How long `stop` waits for its connections to end; they are reset, so this is never reached in a running loop."""
_UNCOUNTED = frozenset({"/metrics", "/health", "/load", "/ping", "/version"})
"""Paths that vLLM leaves out of its HTTP metrics."""


class SimReplica:
    """A replica. `start` binds it, `stop` ends it; in between everything here may be looked at and changed."""

    def __init__(self, options: SimOptions | None = None, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.options = options or SimOptions()
        self.host = host
        self.port = port
        """0 until `start` has chosen one."""
        self.faults = FaultBoard(self._fault_set, self._fault_cleared)
        self.requests: deque[Arrival] = deque(maxlen=self.options.recorded_requests)
        """The latest requests, oldest first."""
        self.peers: Sequence[SimReplica] = (self,)
        """Replicas whose faults can be switched through this one's socket."""
        self.state: ReplicaState
        """Set by `start`."""
        self._changes = Changes()
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._reopening: asyncio.Task[None] | None = None
        self._connection_serial = 0
        self._request_serial = 0
        self._timers: list[asyncio.TimerHandle] = []
        self._ordered_by: int | None = None
        """Serial number of the connection whose order is being carried out: it still gets its answer."""

    @property
    def url(self) -> str:
        """The base URL, without a path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def engine(self) -> Engine:
        """The engine of now, of rank 0 where it is data-parallel; a restart puts another in its place."""
        return self.state.driver.engine

    @property
    def open_connections(self) -> int:
        """Connections that are open at this moment."""
        return len(self._connections)

    async def start(self) -> None:
        """Bind the socket and begin to answer.

        Raises:
            OSError: the address is taken.
        """
        self.state = ReplicaState(self.options, asyncio.get_running_loop(), self.changed, self.host)
        await self._listen(self._bind())

    async def stop(self) -> None:
        """Close the socket, reset all connections, forget all timers."""
        if self._reopening is not None:
            await self._reopening
        self._close_listener()
        for timer in self._timers:
            timer.cancel()
        self.state.stop()
        for publisher in self.state.publishers:
            await publisher.close()
        self._reset_connections()
        await self.wait_for(lambda: not self._connections, _STOP_S)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def wait_for(self, predicate: Callable[[], bool], timeout_s: float) -> None:
        """Return once the predicate holds. It is looked at now and at every change of this replica.

        Raises:
            TimeoutError: it did not hold within `timeout_s`.
        """
        await self._changes.wait_for(predicate, timeout_s)

    def restart_cold(self) -> None:
        """Be a new process at once: connections reset, cache and stored responses gone, counters 0, new start time."""
        self.state.restart()
        self._reset_connections()
        self.changed()

    # connection.Host

    @property
    def keep_alive_s(self) -> float:
        """See SimOptions."""
        return self.options.keep_alive_s

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that `start` ran in."""
        return self.state.loop

    def opened(self, connection: Connection) -> int:
        """Note a new connection."""
        self._connections.add(connection)
        self._connection_serial += 1
        self.changed()
        return self._connection_serial

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self._connections.discard(connection)
        self.changed()

    def arriving(self, connection: int, method: str, target: str, headers: list[Header]) -> Arrival:
        """Note a request whose head is here."""
        self._request_serial += 1
        arrival = Arrival(self._request_serial, connection, method, target, headers, self.loop.time())
        self.requests.append(arrival)
        self.changed()
        return arrival

    def answered(self, arrival: Arrival) -> None:
        """Count an answer that went out whole."""
        if arrival.path not in _UNCOUNTED:
            duration_s = (self.loop.time() - arrival.arrived_s) * self.options.time_scale
            handler = handler_label(arrival.path)
            self.state.http.count(handler, arrival.method, arrival.status or 0, len(arrival.body), duration_s)

    def reuse_fault(self) -> Fault | None:
        """Return the fault that closes a connection which is about to be reused."""
        return self.faults.take_close_reused()

    def serve(self, arrival: Arrival, connection: Connection, *, http10: bool, reuse: bool) -> Ongoing | None:
        """Answer a complete request."""
        taken = self.faults.take(arrival.path)
        reply = Reply(connection, arrival, taken, http10=http10, reuse=reuse, preface=self._preface(arrival))
        connection.attach(reply)
        if arrival.path == CONTROL_PATH:
            self._control(arrival, reply)
        elif FaultKind.HANG in taken:
            pass
        elif (fault := taken.get(FaultKind.RESET_BEFORE_FIRST_BYTE)) is not None:
            connection.close(abort=fault.abort)
        elif self.faults.has(FaultKind.ENGINE_DIED):
            self._answer_dead(arrival, reply)
        else:
            return answer(self.state, Call(arrival, reply, taken))
        return None

    def changed(self) -> None:
        """Something happened that someone may wait for."""
        self._changes.tell()

    # Sockets

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.create_server((self.host, self.port), family=family, backlog=_BACKLOG)
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        return listener

    async def _listen(self, listener: socket.socket) -> None:
        server = await self.loop.create_server(lambda: Connection(self), sock=listener, backlog=_BACKLOG)
        if self._is_gone():
            server.close()
        else:
            self._server = server

    def _close_listener(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _reopen(self) -> None:
        reopening = self._reopening is not None and not self._reopening.done()
        if self._server is None and not reopening and not self._is_gone():
            # The kernel takes connections from here on; the loop accepts them a moment later.
            self._reopening = self.loop.create_task(self._listen(self._bind()))

    def _is_gone(self) -> bool:
        gone = (FaultKind.REFUSE, FaultKind.SILENT_SIGTERM, FaultKind.ENGINE_DIED)
        return any(self.faults.has(kind) for kind in gone)

    def _reset_connections(self) -> None:
        for connection in tuple(self._connections):
            if connection.serial != self._ordered_by:
                connection.close(abort=True)

    def _close_idle_connections(self) -> None:
        for connection in tuple(self._connections):
            if connection.idle:
                connection.close(abort=False)

    # Faults

    def _fault_set(self, fault: Fault) -> None:
        begin: dict[FaultKind, Callable[[], None]] = {
            FaultKind.REFUSE: self._close_listener,
            FaultKind.SLEEP: self.state.sleep,
            FaultKind.SILENT_SIGTERM: self._fall_silent,
            FaultKind.ENGINE_DIED: lambda: self._lose_engine(fault.delay_s or _DEATH_S),
            FaultKind.RESTART_COLD: self.restart_cold,
        }
        if fault.kind in begin:
            begin[fault.kind]()
        if fault.for_s is not None:
            self._timers.append(self.loop.call_later(fault.for_s, self.faults.drop, fault))
        self.changed()

    def _fault_cleared(self, fault: Fault) -> None:
        if fault.kind in (FaultKind.SILENT_SIGTERM, FaultKind.ENGINE_DIED):
            self.restart_cold()  # What comes back is another process.
        elif fault.kind is FaultKind.SLEEP:
            self.state.go_on()
        self._reopen()
        self.changed()

    def _fall_silent(self) -> None:
        self._close_listener()
        self._close_idle_connections()
        self.state.freeze()

    def _lose_engine(self, delay_s: float) -> None:
        self.state.fail_all()
        self._timers.append(self.loop.call_later(delay_s, self._end_process))

    def _end_process(self) -> None:
        if self.faults.has(FaultKind.ENGINE_DIED):
            self._close_listener()
            for connection in tuple(self._connections):
                connection.close(abort=False)

    def _answer_dead(self, arrival: Arrival, reply: Reply) -> None:
        if arrival.path == "/health":
            reply.sized(503, b"")
        else:
            reply.sized(500, openai_error(ENGINE_DEAD, "InternalServerError", None, 500))

    def _control(self, arrival: Arrival, reply: Reply) -> None:
        """/sim/faults: GET lists, POST sets and clears, DELETE clears all."""
        meant: SimReplica = self
        self._ordered_by = arrival.connection
        try:
            if arrival.method == "POST":
                order = read_order(arrival.body)
                meant = self if order.replica is None else self.peers[order.replica]
                if order.clear:
                    meant.faults.clear(*(() if order.clear == "all" else map(FaultKind, order.clear)))
                meant.faults.set(*order.set)
            elif arrival.method == "DELETE":
                self.faults.clear()
        except (ValueError, IndexError, OSError) as error:
            reply.sized(400, openai_error(str(error), "BadRequestError", None, 400))
            return
        finally:
            self._ordered_by = None
        reply.sized(200, listing(meant.faults.active()))

    def _preface(self, arrival: Arrival) -> bytes:
        lines = server_headers()
        if self.options.request_id_headers:
            given = arrival.header(b"x-request-id") or random_id().encode()
            lines += b"x-request-id: %b\r\n" % given
        return lines
