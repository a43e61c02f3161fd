"""One attempt of one request on one replica, from `Fleet.route` to `Fleet.settle`."""

from __future__ import annotations

from typing import NamedTuple

from router.core.batch import Mark
from router.core.curves import ReturnClass
from router.core.leases import Lease
from router.core.ledger import Entry
from router.core.replica import Replica
from router.core.tokens import TokenScale
from router.core.types import Decision, RoutingRequest


class Settlement(NamedTuple):
    """What the end of an attempt says of its replica's cache."""

    served: bool
    """The answer came, or had begun when the client left or the replica died: its turn can go on there."""
    computed: bool
    """The engine has computed the prompt."""
    overestimated: bool
    """The engine reported clearly fewer cached tokens than it was believed to hold."""
    answer_bytes: int
    """Canonical size of the generated answer, which is resident behind its prompt."""
    prompt_tokens: int
    answer_tokens: int
    bytes_per_token: float
    """As learnt of the request's model, this answer not included."""
    kind: ReturnClass
    """How likely it is to be followed by another turn."""


class Ticket:
    """What must be given back when the attempt ends. Opaque to callers but for its decision and times."""

    __slots__ = ("_closed", "decision", "decoding_since", "entry", "first_byte_s", "lease", "number", "prefill_s",
                 "replica", "request", "scale")  # fmt: skip

    def __init__(
        self,
        number: int,
        request: RoutingRequest,
        replica: Replica,
        decision: Decision,
        scale: TokenScale | None,
        lease: Lease | None,
        entry: Entry,
    ) -> None:
        self.number = number
        """Grows from ticket to ticket."""
        self.request = request
        self.replica = replica
        self.decision = decision
        self.scale = scale
        self.lease = lease
        self.entry = entry
        self.first_byte_s: float | None = None
        self.prefill_s: float | None = None
        """What its prefill took, where that can be told."""
        self.decoding_since: Mark | None = None
        """Who else was decoded when its answer began; None before that."""
        self._closed = False

    @property
    def residency_tokens(self) -> int:
        """Tokens that the chosen replica was believed to hold, without credit for the last answer."""
        if self.scale is None or self.lease is None:
            return 0
        return self.scale.cached_tokens(self.lease.fresh_from, self.replica.block_tokens, answer_resident=False)

    def close(self) -> None:
        """Mark as settled; a second call raises RuntimeError."""
        if self._closed:
            raise RuntimeError("this attempt is settled already")
        self._closed = True
