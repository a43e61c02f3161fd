"""The ledger: what this router has sent to one replica and the replica has not yet worked off."""

from __future__ import annotations

from typing import NamedTuple


class Work(NamedTuple):
    """What a prompt is to a replica, in tokens."""

    uncached: int
    """To be computed."""
    cached: int = 0
    """Before those, in its cache or in a slower one."""
    reloaded: int = 0
    """Of the cached ones, those in a slower one: host memory, a disk, a shared store."""


class Entry:
    """One request in flight on one replica."""

    __slots__ = ("among_peers", "dispatched_s", "expected_end_s", "prefill_s", "prefilling", "streaming", "work")

    def __init__(
        self,
        work: Work,
        prefill_s: float,
        streaming: bool,
        dispatched_s: float,
        expected_end_s: float,
        among_peers: bool = False,
    ) -> None:
        self.work = work
        self.prefill_s = prefill_s
        """Seconds that its prefill is taken for, the waiting line apart."""
        self.streaming = streaming
        self.dispatched_s = dispatched_s
        self.expected_end_s = expected_end_s
        """When its prefill should be over; believed only where no first byte will tell (an answer in one piece)."""
        self.prefilling = True
        self.among_peers = among_peers
        """Other routers' requests were waiting there too: the time to its first byte is not its own."""


class Ledger:
    """Uncached prompt tokens sent and not yet prefilled, and active streams.

    Tokens are counted in at dispatch and out at the first byte of the answer. A stream counts until its last byte.
    An answer in one piece has no early first byte, so its tokens also leave when a later request answers (engines
    prefill in order of arrival) or when its predicted prefill time has passed; its place among the streams does not.
    """

    __slots__ = ("context_tokens", "last_first_byte_s", "pending", "prefill_s", "streams", "unanswered",
                 "uncached_tokens")  # fmt: skip

    def __init__(self) -> None:
        self.pending: dict[int, Entry] = {}
        """Requests whose prefill is not known to be over, in the order of their dispatch."""
        self.unanswered: dict[int, Entry] = {}
        """Requests of whose answer nothing has come, in the order of their dispatch."""
        self.uncached_tokens = 0
        self.prefill_s = 0.0
        """Seconds that the pending prefills take together."""
        self.context_tokens = 0
        """Prompt tokens of all requests in flight."""
        self.streams = 0
        self.last_first_byte_s = float("-inf")

    @property
    def unanswered_s(self) -> float:
        """Prefill seconds of the requests of whose answer nothing has come, long expired ones included."""
        return sum(entry.prefill_s for entry in self.unanswered.values())

    def open(self, entry: Entry) -> None:
        """Count a request in."""
        self.pending[id(entry)] = self.unanswered[id(entry)] = entry
        self.uncached_tokens += entry.work.uncached
        self.prefill_s += entry.prefill_s
        self.context_tokens += entry.work.uncached + entry.work.cached
        self.streams += 1

    def prefilled(self, entry: Entry) -> None:
        """Count a request's tokens out, and those of earlier ones that could not say so themselves."""
        self.unanswered.pop(id(entry), None)
        if not entry.prefilling:
            return
        if next(iter(self.pending.values())) is not entry:
            for earlier in list(self.pending.values()):
                if earlier is entry:
                    break
                if not earlier.streaming:
                    self._count_out(earlier)
        self._count_out(entry)

    def close(self, entry: Entry) -> None:
        """Count a request out for good."""
        self.unanswered.pop(id(entry), None)
        if entry.prefilling:
            self._count_out(entry)
        self.context_tokens -= entry.work.uncached + entry.work.cached
        self.streams -= 1

    def expire(self, now: float) -> None:
        """Count out the tokens of answers in one piece whose prefill must be over by now."""
        while self.pending:
            entry = next(iter(self.pending.values()))
            if entry.streaming or entry.expected_end_s > now:
                return
            self._count_out(entry)

    def _count_out(self, entry: Entry) -> None:
        del self.pending[id(entry)]
        entry.prefilling = False
        self.uncached_tokens -= entry.work.uncached
        # Sums of floats drift; an empty ledger is exactly empty.
        self.prefill_s = self.prefill_s - entry.prefill_s if self.pending else 0.0
