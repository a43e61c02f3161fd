"""How fast a fleet's replicas are: learnt from how long their answers take, believed of those that were not timed."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from router.core.batch import Mark
from router.core.costs import DecodeCost, PrefillCost
from router.core.replica import Replica
from router.core.ticket import Ticket
from router.core.types import Usage

LONGEST_KEEP_RATIO = 0.99
"""Share of the longest answer that is kept at each new one: about the last 100 speak."""

SPREAD_SHARE = 1 / 8
"""Answers, as a share of the replicas, after which those that were not timed are believed to be as fast as the others
are by now: looking at all replicas at every answer is what it costs, and a mean of many changes slowly."""

LEARN_PAUSE_S = 0.05
"""For so long after an answer nothing is learnt of its replica's costs, once a prefill's are known. Some fifty answers
speak: at hundreds a second they would speak of a moment only, and to learn from all would cost each 50 microseconds."""

MIN_DECODED_TOKENS = 16
"""Answers shorter than this say more of the network than of a decode step."""


class Speeds:
    """Learns what replicas' work costs. Its replicas are those of one fleet."""

    def __init__(self, prior_tokens_per_s: float) -> None:
        self.prior_tokens_per_s = prior_tokens_per_s
        self.longest_answer_s: float | None = None
        """What an answer in one piece took of late at the most; None while there was none."""
        self._all_timed = True
        self._unspread = 0

    def spread(self, replicas: Collection[Replica], told: Iterable[Replica] | None = None) -> None:
        """Believe replicas that were not timed yet to be as fast as the mean of those that were; only those `told`.

        At the prior they would get no work in a fleet that is faster, and so never be timed.
        """
        timed = [(replica.prefill, replica.weight) for replica in replicas if replica.prefill.measured]
        mean = PrefillCost.mean(timed) if timed else PrefillCost(self.prior_tokens_per_s)
        decoding = [(replica.decode, replica.weight) for replica in replicas if replica.decode.measured]
        step = DecodeCost.mean(decoding)
        self._all_timed = len(timed) == len(replicas)
        for replica in replicas if told is None else told:
            if not replica.prefill.measured:
                replica.prefill.assume(mean, replica.weight)
            if not replica.decode.measured:
                replica.decode.assume(step, replica.weight)

    def begun(self, ticket: Ticket, now: float) -> None:
        """Note the first byte of an answer: how long its prefill took, and who decodes beside it from now on."""
        entry, replica = ticket.entry, ticket.replica
        if not ticket.request.streaming:
            answer_s = now - entry.dispatched_s
            self.longest_answer_s = max(answer_s, (self.longest_answer_s or 0.0) * LONGEST_KEEP_RATIO)
            replica.prefill.at_least(entry.work.uncached, answer_s)
        elif not entry.among_peers and replica.peer_load.pending == 0:
            ticket.prefill_s = now - max(entry.dispatched_s, replica.ledger.last_first_byte_s)
        ticket.decoding_since = replica.batch.mark(now)

    def ended(self, ticket: Ticket, usage: Usage, replicas: Collection[Replica], now: float) -> None:
        """Learn from an answer's times, by the counts that the engine gave, else by what was expected."""
        work, replica = ticket.entry.work, ticket.replica
        if not ticket.request.streaming or now - replica.timed_s < LEARN_PAUSE_S:
            return
        if replica.prefill.measured:
            replica.timed_s = now
        if ticket.prefill_s is not None:
            uncached, cached = work.uncached, work.cached
            if usage.cached_tokens is not None and usage.prompt_tokens is not None:
                cached = min(usage.cached_tokens, usage.prompt_tokens)
                uncached = usage.prompt_tokens - cached
            replica.prefill.observe(uncached, cached, ticket.prefill_s, min(work.reloaded, cached))
            self._unspread += 1
            if not self._all_timed and self._unspread >= SPREAD_SHARE * len(replicas):
                self._unspread = 0
                self.spread(replicas)
        if ticket.decoding_since is not None:
            _learn_step(replica, ticket.decoding_since, usage.completion_tokens or 0, now)


def _learn_step(replica: Replica, since: Mark, tokens: int, now: float) -> None:
    """Learn the time of a decode step: a stream gains a token a step, whoever decodes beside it."""
    if tokens >= MIN_DECODED_TOKENS and now > since.at_s:
        streams, context_tokens = replica.batch.means_since(since, now)
        peers = replica.peer_load.streams
        replica.decode.observe(streams + peers, context_tokens, (now - since.at_s) / (tokens - 1))
