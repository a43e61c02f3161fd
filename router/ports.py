"""What the house needs from outside: engines to be read, other routers' knowledge, and listeners to be told."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Literal, Protocol

import msgspec

from router.core.landmarks import Question
from router.core.misses.types import TurnAccount
from router.core.ticket import Settlement, Ticket
from router.core.token_ids import TokenIds
from router.core.types import Decision, EngineReport, Outcome, OutcomeKind, ReplicaId, RoutingRequest, Usage

Source = Literal["local", "redis", "none"]
"""Where what is known of a request came from: this router's own books, the shared store, or it is new."""


class RequestRecord(msgspec.Struct, frozen=True, gc=False):
    """One finished request, as the router saw it. Times in seconds from the whole request's arrival."""

    request_id: str
    method: str
    path: str
    model: str
    shape: str
    streaming: bool
    batch: bool
    """Nobody waits for the answer, as the client said."""
    client: str
    """Name of the key that it came in with; empty where no keys are asked for, or none fitted."""
    status: int
    """Status sent to the client; 499 when it left before one was sent."""
    outcome: OutcomeKind | None
    """How the last attempt ended; None where there was none."""
    decision: Decision | None
    source: Source | None
    """None where there was nothing to know: no prompt of a block's length, and no session."""
    attempts: int
    usage: Usage
    overhead_s: float
    """The router's own part before the request was handed to a connection: reading it and deciding."""
    queued_s: float
    """How long it waited in the router for a replica with room; not part of `overhead_s`."""
    retried_s: float
    """What attempts took that failed, before the last one."""
    connect_s: float
    """Until the last attempt had a connection; 0 where one was open."""
    prefill_s: float | None
    """From there to the first byte of content: the engine's own queue, and its prefill. For an answer in one piece its
    generation as well. None where no content came."""
    decode_s: float | None
    """From the first byte of content to the end. The phases from `overhead_s` to here make up `total_s`."""
    ttft_s: float | None
    """To the first byte of the answer's body that carries content."""
    total_s: float
    ended_s: float
    """When it was over, by the router's monotonic clock."""
    turn: TurnAccount | None
    """What became of its history; None where there is no prompt of a block's length, or no answer."""
    error: str | None
    """Code of the router's own error, if it gave one."""


class Recorder(Protocol):
    """Writes down what traffic was like. Nothing here waits, and nothing raises."""

    def request_finished(self, record: RequestRecord, request: RoutingRequest, reads: int) -> None:
        """A request is over that was sent to a replica. `reads`: pieces in which its answer came.

        The request's prompt may hold text (see `Prompt.open_text`), which must not be kept.
        """


class Keeper(Protocol):
    """Keeps idle sessions warm, and so is told of attempts as they begin and end. Nothing waits, nothing raises."""

    def sent(self, ticket: Ticket, path: str, body: bytes) -> None:
        """A request is being sent to a replica. Its body must be kept within bounds, and nowhere but in memory."""

    def settled(self, ticket: Ticket, settlement: Settlement, usage: Usage) -> None:
        """It has ended there, or never began."""


class Endpoint(msgspec.Struct, frozen=True):
    """Where a replica is, and what its source knows of it."""

    url: str
    """Scheme, host and port, lower case, the port written out."""
    uid: str = ""
    """What makes it itself beside its address, such as a pod's uid: another uid is another replica, with a cold
    cache."""
    rank: int | None = None
    """Data-parallel rank within the engine at `url`; None for an engine that is one replica."""
    models: tuple[str, ...] = ()
    """Models it serves, until the engine says so itself; empty: unknown."""
    weight: float = 1.0
    """Its share of the work against others', until its speed is measured. Above 0."""
    labels: tuple[tuple[str, str], ...] = ()
    """For people; nothing is decided by them."""
    leaving: bool = False
    """It is about to be stopped: nothing new is sent there."""

    @property
    def identity(self) -> tuple[str, str, int | None]:
        """What tells it from other replicas; the rest may change while it stays the same."""
        return self.url, self.uid, self.rank

    def of_rank(self, rank: int) -> Endpoint:
        """Return this engine's replica of one data-parallel rank."""
        return msgspec.structs.replace(self, rank=rank)


class Discovery(Protocol):
    """A source of replicas."""

    @property
    def name(self) -> str:
        """The source as the user wrote it, for logs and the admin API. Never has a secret."""

    def endpoints(self) -> AsyncIterator[list[Endpoint]]:
        """Give the whole list, at first and whenever it has changed, for ever.

        It never raises: a source that can't be read is logged once, tried again, and its last list stays good. Its
        first list is waited for, so it comes without delay, or not at all while the source can't be read.
        """


class Observer(Protocol):
    """Is told what happened, after it happened; must not wait and must not raise."""

    def request_finished(self, record: RequestRecord) -> None:
        """A request is over."""

    def attempt_failed(self, replica: ReplicaId, kind: OutcomeKind) -> None:
        """An attempt failed on a replica; the request may go on elsewhere."""


class Audience(Protocol):
    """All observers together: requests come in groups, since to tell each of many at once costs less."""

    def requests_finished(self, records: Sequence[RequestRecord]) -> None:
        """These requests are over, in this order."""

    def attempt_failed(self, replica: ReplicaId, kind: OutcomeKind) -> None:
        """An attempt failed on a replica; the request may go on elsewhere."""


class Trace(Protocol):
    """One request that is traced, whether spans of it are wanted or not. Nothing here waits, and nothing raises."""

    @property
    def lines(self) -> bytes:
        """Header lines that tell the engine where its own spans belong: below the present attempt's."""

    def attempt_ended(self, ticket: Ticket, sent_s: float | None, status: int | None, outcome: Outcome) -> None:
        """An attempt has ended. `sent_s`: when its request went out; `status`: of the replica's answer."""

    def finished(self, record: RequestRecord, started_s: float) -> None:
        """The request is over; all its attempts have ended. `started_s`: its arrival, by the plane's clock."""


class Tracer(Protocol):
    """Traces requests across the router. Nothing here waits, and nothing raises."""

    def begin(self, headers: Sequence[tuple[bytes, bytes]]) -> Trace:
        """Trace a request. `headers`: of the client's, those that name a trace which it belongs to."""


class Store(Protocol):
    """What other routers know, and where they are told. Nothing here waits, and nothing raises."""

    @property
    def answers(self) -> bool:
        """Whether it is worth asking: False while the store is down or slow."""

    def ask(self, question: Question, then: Callable[[bool], None]) -> None:
        """Let the fleet learn the answer, then call `then` once: with whether there was anything to learn.

        That is within twice the store's deadline. What comes later is learnt all the same, behind the request's back.
        """

    def opened(self, ticket: Ticket) -> None:
        """A request was sent to a replica."""

    def first_byte(self, ticket: Ticket) -> None:
        """Its prefill is over."""

    def settled(self, ticket: Ticket, settlement: Settlement) -> None:
        """It has ended there."""

    def stored(self, key: int, replica: ReplicaId) -> None:
        """A replica stores an object, by the hash of its id."""


class Tokenizer(Protocol):
    """Makes the engine's tokens of prompts, beside the event loop. Nothing here waits, and nothing raises."""

    def ask(self, request: RoutingRequest, body: bytes, then: Callable[[TokenIds | None], None]) -> None:
        """Call `then` once with the prompt's tokens, or with None: it can't be rendered exactly, or not in time.

        That is at the deadline at the latest, on the event loop, and may be before this returns.
        """

    def reported(self, request: RoutingRequest, prompt_tokens: int) -> None:
        """Learn how many prompt tokens an engine counted in a request that may have been tokenised."""

    def close(self) -> None:
        """Begin nothing more."""


OWN_FAULTS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
"""Numbers of an OSError that say this system gives no connection: no file, no memory, no local port. The other side was
not even asked."""


def own_fault(error: BaseException | None) -> OSError | None:
    """Return that of `OWN_FAULTS` which an error or what caused it is; None for the other side's fault."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in OWN_FAULTS:
            return error
        causes = error.exceptions if isinstance(error, BaseExceptionGroup) else (error.__cause__, error.__context__)
        error = next(filter(None, causes), None)  # a group has one for each address of a name
    return None


class EngineProbe(Protocol):
    """Asks one engine, which may be several replicas: its data-parallel ranks.

    Every method raises ConnectionRefusedError when nothing listens there, TimeoutError or another OSError when it can't
    be read or does not answer in time; one of `OWN_FAULTS` when it could not be asked.
    """

    async def health(self) -> None:
        """Return if it answers a health check, with anything but a server error."""

    async def reports(self, ranks: Sequence[int | None]) -> list[EngineReport | None]:
        """Read its metrics once, and return a report for each of `ranks`; rank None is the whole engine.

        Numbers that can't be read are None in a report. In place of a report, None: the engine has no such rank.
        """

    async def models(self) -> list[dict[str, object]]:
        """List its models as the engine describes them."""

    async def paused(self) -> bool | None:
        """Tell whether it takes requests and lets them wait. None: it does not say, and will not while it runs."""

    async def generates(self, model: str, rank: int | None) -> bool:
        """Have one token generated: the only proof that it works. False: it refused, which proves nothing."""
