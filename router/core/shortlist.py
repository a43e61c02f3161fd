"""Who is priced at all in a large fleet: who holds something of the prompt, and a sample of the others.

A price takes microseconds, and with a thousand replicas a decision would take milliseconds. The cheapest of a sample is
nearly as cheap as the cheapest of all (Mitzenmacher, The Power of Two Choices in Randomized Load Balancing, 2001), and
where many routers know the load of a moment ago it is better: they don't all go to the one that was idle then
(Mitzenmacher, How Useful Is Old Information?, 2000).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from router.core.candidates import Candidates, fit
from router.core.holders import HOLDER_BYTES, Holders
from router.core.replica import Replica
from router.core.types import ReplicaId, RoutingRequest

LARGE = 48
"""Replicas up to which all are priced: a decision takes 0.2 ms then, and a shortlist as long as this gains nothing."""

SAMPLED = 24
"""Replicas that are priced whatever they hold: a quarter of them is idle in a fleet that is busy for three quarters of
the time, and one idle one is enough."""

HOLDERS = 16
"""Replicas that are priced for what they hold. A session's history is on one or two; a hot prefix is on hundreds, of
which that many are as good as all."""

LEVELS = 4
"""Depths at which holders are looked for: the session's last turn, an earlier one that it has moved away from, what
sessions share, and what more of them share."""

TRIES = 4
"""Replicas that are looked at for each that is sampled, where most do not serve the model or are not fit."""

LEAST_FIT = 8
"""Samples smaller than this decide nothing: all replicas are priced."""

_FACTOR, _ADDEND, _MASK_64 = 6364136223846793005, 1442695040888963407, (1 << 64) - 1
"""Knuth's linear congruential generator MMIX: the same seed, the same samples."""


class Asked(NamedTuple):
    """Whom a request may be sent to, and among whom they were looked for."""

    found: Candidates
    replicas: Collection[Replica]
    """The found ones, and those that may not be asked."""
    sample: list[Replica] | None = None
    """Of a large fleet those that stand for all of it; None: the found ones are all there are."""


Find = Callable[[Collection[Replica]], Candidates]
"""Tells which of some replicas a request may be sent to."""


class Shortlist:
    """The replicas of a large fleet, ready to be sampled and to be found by what they hold."""

    def __init__(self, replicas: Mapping[ReplicaId, Replica], seed: int) -> None:
        """`replicas`: the fleet's, as they come and go. `seed`: of the samples; routers have different ones."""
        self._replicas = replicas
        self._state = seed & _MASK_64
        self._everyone: list[Replica] = []
        self.holders: Holders | None = None
        """None while the fleet has never been large."""

    @property
    def block_bytes(self) -> int:
        """Memory that each block takes here beside its mirror."""
        return 0 if self.holders is None else HOLDER_BYTES

    def add(self, replica: Replica) -> None:
        """Take a replica in; with more than `LARGE` of them, look at what they hold from now on."""
        self._everyone.append(replica)
        if self.holders is not None:
            self.holders.follow(replica)
        elif len(self._everyone) > LARGE:
            self.holders = Holders()
            for one in self._everyone:
                self.holders.follow(one)

    def remove(self, replica: Replica) -> None:
        """Let go of a replica that has left."""
        self._everyone.remove(replica)
        if self.holders is not None:
            self.holders.forget(replica)

    def ask(
        self, find: Find, request: RoutingRequest, named: Iterable[ReplicaId | None], now: float, only_few: bool
    ) -> Asked:
        """Return whom a request may be sent to: `only_few` of a large fleet, with the `named` ones if they are there.

        Where those few do not serve, all are asked. Raises as `find`.
        """
        sample = self._sample(request.model, now) if only_few and len(self._everyone) > LARGE else []
        if len(sample) >= LEAST_FIT:
            few = self._few(request, named, sample)
            found = find(few)
            if found.replicas and not found.last_resort:
                return Asked(found, few, sample)
        return Asked(find(self._everyone), self._everyone)

    def _few(self, request: RoutingRequest, named: Iterable[ReplicaId | None], sample: list[Replica]) -> list[Replica]:
        known = (self._replicas.get(name) for name in named if name is not None)
        found = {id(replica): replica for replica in known if replica is not None}
        if request.prompt is not None and self.holders is not None:
            self._add_holders(found, self.holders, request.prompt.hashes)
        found.update((id(replica), replica) for replica in sample)
        return list(found.values())

    def _add_holders(self, found: dict[int, Replica], holders: Holders, hashes: list[int]) -> None:
        for level, replicas in enumerate(holders.levels(hashes), 1):
            room = HOLDERS - len(found)
            some = replicas if len(replicas) <= room else [self._one_of(replicas) for _ in range(room)]
            found.update((id(replica), replica) for replica in some)
            if level == LEVELS or len(replicas) > room:
                return

    def _sample(self, model: str, now: float) -> list[Replica]:
        sample: dict[int, Replica] = {}
        for _ in range(SAMPLED * TRIES):
            replica = self._one_of(self._everyone)
            if fit(replica, model, now):
                sample[id(replica)] = replica
                if len(sample) == SAMPLED:
                    break
        return list(sample.values())

    def _one_of(self, replicas: list[Replica]) -> Replica:
        self._state = (self._state * _FACTOR + _ADDEND) & _MASK_64
        return replicas[(self._state >> 33) % len(replicas)]
