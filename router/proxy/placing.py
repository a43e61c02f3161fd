"""A request's way to a replica: what is known of it is asked for, it is routed, and waits where none has room."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial

from router.core.admission import QueueFullError
from router.core.misses.turn import Recognised
from router.core.ticket import Ticket
from router.core.types import NoReplicaError, RoutingRequest, UnknownModelError
from router.core.waiting import Waiting
from router.proxy import report
from router.proxy.errors import RouterError
from router.proxy.incoming import Incoming
from router.proxy.inquiry import Inquiry
from router.proxy.plane import Plane


class Placing(ABC):
    """The part of an exchange that ends with a ticket for a replica, or with an error; the exchange adds the rest."""

    def __init__(self, plane: Plane, incoming: Incoming) -> None:
        self.plane = plane
        self.incoming = incoming
        self.request: RoutingRequest | None = None
        self.recognised: Recognised | None = None
        """Its session, and what its turn goes on from."""
        self.ended_anew = False
        """Whether its messages' end came to be known before it was recognised, and only by its own."""
        self.response_complete = False
        self.started_s = plane.clock()
        self.recollected = False
        """Whether the store taught something of this request."""
        self.overhead_s = 0.0
        self.tenant = 0
        """Whose share of the queue it takes; 0 for everybody without a name."""
        self.queued_s = 0.0
        """How long it waited for a replica with room."""
        self._waiting: Waiting | None = None

    @abstractmethod
    def look(self, now: float) -> None:
        """See `plane.Active`."""

    @abstractmethod
    def look_at_hosts(self, now: float) -> None:
        """See `plane.Active`."""

    @abstractmethod
    def cut(self, error: RouterError) -> None:
        """See `plane.Active`."""

    @abstractmethod
    def fail(self, error: RouterError, message: str | None = None, retry_after_s: float | None = None) -> None:
        """Answer with an error of the router's own; `message` and `retry_after_s` where this case has its own."""

    @abstractmethod
    def _try(self, ticket: Ticket) -> None:
        """Make an attempt on the ticket's replica."""

    # Route

    def start(self) -> None:
        """Route the request: it has arrived whole, and it is its turn on its connection."""
        plane, incoming = self.plane, self.incoming
        self.started_s = plane.clock()
        plane.active.add(self)
        self.request = request = plane.read(incoming)
        asked = plane.question(request)
        if asked is None and plane.tokenizer is None:
            self._route(request)
        else:
            Inquiry(request, self._prepared).ask(plane.store, asked, plane.tokenizer, incoming.body())

    def _prepared(self, request: RoutingRequest, taught: bool) -> None:
        """Go on: the fleet has learnt what other routers know of the request, and its tokens are known, or not."""
        self.recollected = taught
        if not self.response_complete:  # the client may have left meanwhile
            self.request = request
            self._route(request)

    def _route(self, request: RoutingRequest) -> None:
        plane = self.plane
        try:
            found = plane.admit(request, self.tenant)
        except NoReplicaError:
            self.fail(RouterError.NO_REPLICA)
        except UnknownModelError:
            self._unknown_model()
        except QueueFullError as full:
            self.waited_too_long(full.wait_s)
        else:
            if isinstance(found, Ticket):
                self._try(found)
            else:
                self._waiting = found
                plane.room.hold(found, self)
            self.overhead_s = plane.clock() - self.started_s
            plane.later.put(partial(self._recognise, request))  # it is on its way: nobody waits for this

    def _recognise(self, request: RoutingRequest) -> None:
        self.recognised = self.plane.recognise(request, self.started_s, self.ended_anew)

    # In the queue

    def go(self, ticket: Ticket) -> None:
        """Leave the queue for a replica that has room."""
        self._leave_queue()
        self._try(ticket)

    def waited_too_long(self, wait_s: float) -> None:
        """Leave the queue, or do not enter it: it would take too long."""
        self._leave_queue()
        if any(replica.health.up for replica in self.plane.fleet):
            self.fail(RouterError.QUEUE_FULL, retry_after_s=wait_s)
        else:
            self.fail(RouterError.NO_REPLICA, "No replica is up. Try again later.")

    def nobody_serves(self) -> None:
        """Leave the queue: no replica serves the model any more."""
        self._leave_queue()
        self._unknown_model()

    def _give_up_waiting(self) -> None:
        """Leave the queue, if it is there."""
        if self._waiting is not None:
            self.plane.room.leave(self._waiting)
            self._leave_queue()

    def _leave_queue(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self.queued_s = self.plane.clock() - waiting.since_s

    def _unknown_model(self) -> None:
        model = "" if self.request is None else self.request.model
        self.plane.unknown_model_seen()
        self.fail(RouterError.UNKNOWN_MODEL, report.unknown_model(model, self.plane.fleet))
