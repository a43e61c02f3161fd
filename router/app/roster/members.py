"""The roster: which replicas there are to be, by all that name them. The fleet is made to follow it elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from router.core.orders import Listed, Orders
from router.core.types import ReplicaId
from router.ports import Endpoint

ADMIN = "the admin API"
STATIC = "--replica"
"""Names of the two sources that every roster has. The admin API comes first: what it says of a replica counts."""

Place = tuple[str, int | None]
"""URL and rank: where there can be one replica at a time."""


class Watching(Protocol):
    """Is told which replicas come and go, after they came and before they go."""

    def begin(self, replica_id: ReplicaId) -> None:
        """A replica has come in."""

    def end(self, replica_id: ReplicaId) -> None:
        """A replica leaves."""


@dataclass(frozen=True, slots=True)
class Member:
    """A replica that is to be in the fleet."""

    endpoint: Endpoint
    sources: tuple[str, ...]
    """All that name it."""
    name: str | None
    """What the operator calls it, if it was put there through the admin API."""
    drained: bool
    """Whether an operator has ordered that it is drained."""


@dataclass(slots=True)
class _Named:
    """What the sources say of one place, the first source first."""

    endpoints: list[Endpoint] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    name: str | None = None


class Roster:
    """What every source says, and what operators have ordered."""

    def __init__(
        self, id_of: Callable[[Endpoint], ReplicaId], sources: Iterable[str] = (), orders: Orders | None = None
    ) -> None:
        """`id_of` gives a replica's id; `sources` are the discoveries, in order; `orders`, if others share them."""
        self.orders = Orders() if orders is None else orders
        self.watching: Watching | None = None
        """None while no engine is watched."""
        self.complete = asyncio.Event()
        """Set once every source has given a list."""
        self._id_of = id_of
        self._lists: dict[str, list[Endpoint]] = {STATIC: [], **{source: [] for source in sources}}
        self._silent = set(self._lists) - {STATIC}
        self._note_silence()

    def put(self, source: str, endpoints: Iterable[Endpoint]) -> None:
        """Take in the whole list of a source. KeyError: there is no such source."""
        if source not in self._lists:
            raise KeyError(source)
        self._lists[source] = list(_one_for_each_place(endpoints))
        self._silent.discard(source)
        self._note_silence()

    def _note_silence(self) -> None:
        if not self._silent:
            self.complete.set()

    def members(self) -> dict[ReplicaId, Member]:
        """Return all that are to be in the fleet.

        What several sources name is one replica: uid, models and labels are those of the first source that knows them,
        the weight is that of the first, and it is leaving as soon as one says so.
        """
        places: dict[Place, _Named] = {}
        for source, name, endpoint in self._said():
            named = places.setdefault((endpoint.url, endpoint.rank), _Named(name=name))
            named.endpoints.append(endpoint)
            named.sources.append(source)
        return dict(map(self._member, places.values()))

    def _said(self) -> Iterator[tuple[str, str | None, Endpoint]]:
        for name, listed in self.orders.listed().items():
            yield ADMIN, name, endpoint_of(listed)
        for source, endpoints in self._lists.items():
            for endpoint in endpoints:
                yield source, None, endpoint

    def _member(self, named: _Named) -> tuple[ReplicaId, Member]:
        endpoint = _merged(named.endpoints)
        replica_id = self._id_of(endpoint)
        return replica_id, Member(endpoint, tuple(named.sources), named.name, self.orders.drained(replica_id))


def endpoint_of(listed: Listed) -> Endpoint:
    """Return where a replica is that an operator describes."""
    return Endpoint(listed.url, "", listed.rank, listed.models, listed.weight, listed.labels)


def _merged(endpoints: list[Endpoint]) -> Endpoint:
    return msgspec.structs.replace(
        endpoints[0],
        uid=next((said.uid for said in endpoints if said.uid), ""),
        models=next((said.models for said in endpoints if said.models), ()),
        labels=next((said.labels for said in endpoints if said.labels), ()),
        leaving=any(said.leaving for said in endpoints),
    )


def _one_for_each_place(endpoints: Iterable[Endpoint]) -> Iterable[Endpoint]:
    """Of several that one source has at one address: the last one that stays, for a pod's successor comes after it."""
    chosen: dict[Place, Endpoint] = {}
    for endpoint in endpoints:
        place = endpoint.url, endpoint.rank
        if place not in chosen or chosen[place].leaving or not endpoint.leaving:
            chosen[place] = endpoint
    return chosen.values()
