"""Replicas put in, taken out and drained while the router runs."""

from __future__ import annotations

import re
import time
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Path, Request, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from router.adapters.discovery.endpoints import MAX_RANKS, checked_weight, replica_url
from router.app.admin.describe import describe, describe_all, drained_by
from router.app.admin.errors import ErrorAnswer
from router.app.house import House
from router.app.roster.following import follow
from router.app.roster.members import Member
from router.core.orders import Kind, Listed, TooManyOrdersError
from router.core.replica import Replica
from router.core.types import ReplicaId

_ID = re.compile(r"r-[0-9a-f]{8}")
"""Of replicas, as the router makes them."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

_Text = Annotated[str, Field(min_length=1, max_length=256)]
_Ident = Annotated[
    str, Path(alias="id", description="A replica's id, or the name that it was put in under", max_length=64)
]


class PutReplica(BaseModel):
    """A replica as an operator describes it."""

    model_config = ConfigDict(extra="forbid")

    url: Annotated[
        str,
        AfterValidator(replica_url),
        Field(description="http://host:port or https://host:port", examples=["http://gpu-5:8000"], max_length=512),
    ]
    rank: Annotated[
        int | None, Field(ge=0, lt=MAX_RANKS, description="Data-parallel rank within the engine, if it has several")
    ] = None
    models: Annotated[
        list[_Text], Field(max_length=256, description="Models it serves, until the engine says so itself")
    ] = []
    weight: Annotated[
        float,
        AfterValidator(checked_weight),
        Field(description="Its share of the work until its speed is measured: above 0, up to 1000"),
    ] = 1.0
    labels: Annotated[dict[_Text, _Text], Field(max_length=64, description="For people")] = {}

    def listed(self) -> Listed:
        """Return it as an order has it."""
        return Listed(self.url, self.rank, tuple(self.models), self.weight, tuple(sorted(self.labels.items())))


class Standing(BaseModel):
    """How a replica stands after what was ordered."""

    id: str
    name: str | None
    url: str
    rank: int | None
    state: Annotated[str, Field(description="joining, ready, suspect, ejected, draining or gone")]
    drained_by: Annotated[str | None, Field(description="operator, source or null")]
    sources: Annotated[list[str], Field(description="All that name it")]
    running: Annotated[int, Field(description="Requests of this router that run there")]
    running_elsewhere: Annotated[int, Field(description="Requests of other routers that run there")]


_NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"model": ErrorAnswer, "description": "There is no such replica"}}
_CONFLICT: dict[int | str, dict[str, Any]] = {409: {"model": ErrorAnswer, "description": "The message says with what"}}


def add_replica_routes(app: FastAPI, house: House) -> None:
    """Add the routes below /api/replicas to an application."""
    change = [Depends(from_here)]

    @app.get("/api/replicas")
    async def replicas() -> list[dict[str, Any]]:
        """Every replica, as in /api/fleet."""
        return describe_all(house)

    @app.get("/api/replicas/{id}", responses=_NOT_FOUND)
    async def replica(ident: _Ident) -> dict[str, Any]:
        """One replica, as in /api/fleet."""
        replica_id, member = _find(house, ident)
        return describe(house, house.fleet[replica_id], member)

    @app.put("/api/replicas/{id}", responses=_CONFLICT | {201: {"model": Standing}}, dependencies=change)
    async def put(ident: _Ident, body: PutReplica, response: Response) -> Standing:
        """Take a replica in under a name, or change what is said of it: weight, labels, models.

        A name that is new answers 201. What is put here counts before what other sources say of the same address.
        """
        created = _put(house, ident, body.listed())
        response.status_code = 201 if created else 200
        return _standing(house, *_find(house, ident))

    @app.delete("/api/replicas/{id}", responses=_NOT_FOUND | _CONFLICT, dependencies=change)
    async def delete(ident: _Ident) -> Standing:
        """Take out a replica that was put in here, at once. What runs there ends as it would."""
        replica_id, member = _find(house, ident)
        replica = house.fleet[replica_id]
        _delete(house, ident, replica_id, member)
        return _stands(house, replica, house.roster.members().get(replica_id), member)

    @app.post("/api/replicas/{id}/drain", responses=_NOT_FOUND, dependencies=change)
    async def drain(ident: _Ident) -> Standing:
        """Send nothing new to a replica until `undrain`; what runs there ends as it would."""
        return _drain(house, ident, holds=True)

    @app.post("/api/replicas/{id}/undrain", responses=_NOT_FOUND, dependencies=change)
    async def undrain(ident: _Ident) -> Standing:
        """End a drain that was ordered here."""
        return _drain(house, ident, holds=False)


def from_here(request: Request) -> None:
    """Refuse what a page of another site lets a browser send: it can't read the answer, but the order would hold."""
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise HTTPException(403, "pages of other sites can't change the fleet")


def _find(house: House, ident: str) -> tuple[ReplicaId, Member]:
    members = house.roster.members()
    if ident in members and ident in house.fleet:
        return ident, members[ident]
    listed = house.roster.orders.listed().get(ident)
    if listed is not None:
        for replica_id, member in members.items():
            if (member.endpoint.url, member.endpoint.rank) == (listed.url, listed.rank):
                return replica_id, member
    raise HTTPException(404, f"there is no replica {ident}")


def _put(house: House, ident: str, listed: Listed) -> bool:
    """Order that a replica be taken in; return whether its name is new."""
    known = house.roster.orders.listed()
    name = ident
    if _ID.fullmatch(ident):
        name = _name_of(house, ident)
    elif not _NAME.fullmatch(ident):
        raise HTTPException(422, "a name has up to 63 of a-z, 0-9 and -, and begins and ends with none of the latter")
    before = known.get(name)
    if before is not None and (before.url, before.rank) != (listed.url, listed.rank):
        raise HTTPException(409, f"{name} is {_place(before)}: delete it first, another address is another replica")
    for other, there in known.items():
        if other != name and (there.url, there.rank) == (listed.url, listed.rank):
            raise HTTPException(409, f"{_place(there)} was put in as {other}")
    if before != listed:
        _order(house, Kind.REPLICA, name, holds=True, listed=listed)
    return before is None


def _name_of(house: House, replica_id: ReplicaId) -> str:
    _, member = _find(house, replica_id)
    if member.name is None:
        raise HTTPException(
            409, f"{replica_id} comes from {', '.join(member.sources)}: change it there, or put its address in under a "
            "name of your own, which counts before what others say"
        )  # fmt: skip
    return member.name


def _place(listed: Listed) -> str:
    return listed.url if listed.rank is None else f"{listed.url} rank {listed.rank}"


def _delete(house: House, ident: str, replica_id: ReplicaId, member: Member) -> None:
    if member.name is None:
        raise HTTPException(409, f"{replica_id} comes from {', '.join(member.sources)}: take it out there, or drain it")
    name = member.name if ident == replica_id else ident
    _order(house, Kind.REPLICA, name, holds=False)
    if member.drained and replica_id not in house.roster.members():
        _order(house, Kind.DRAIN, replica_id, holds=False)


def _drain(house: House, ident: str, holds: bool) -> Standing:
    replica_id, member = _find(house, ident)
    if member.drained != holds:
        _order(house, Kind.DRAIN, replica_id, holds)
    return _standing(house, *_find(house, ident))


def _order(house: House, kind: Kind, name: str, holds: bool, listed: Listed | None = None) -> None:
    """Give an order, have the fleet follow it, and tell the other routers."""
    orders, now_ms = house.roster.orders, int(time.time() * 1000)
    orders.tidy(now_ms, house.fleet.__contains__)
    try:
        orders.give(kind, name, holds, now_ms, listed)
    except TooManyOrdersError:
        raise HTTPException(409, "too many orders are kept: end some, or name the replicas in a file") from None
    follow(house)
    if house.store is not None:
        house.store.ordering.given()


def _standing(house: House, replica_id: ReplicaId, member: Member) -> Standing:
    return _stands(house, house.fleet[replica_id], member, member)


def _stands(house: House, replica: Replica, member: Member | None, was: Member) -> Standing:
    """Describe a replica that is a member, or has just been one."""
    return Standing(
        id=replica.replica_id,
        name=was.name,
        url=was.endpoint.url,
        rank=was.endpoint.rank,
        state=replica.health.state.value,
        drained_by=drained_by(was.endpoint, was),
        sources=[] if member is None else list(member.sources),
        running=replica.ledger.streams,
        running_elsewhere=replica.peer_load.streams,
    )
