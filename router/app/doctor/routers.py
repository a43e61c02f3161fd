"""What can be seen of the router from outside: its client port, and its admin port where that can be read."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from router.app.doctor.asking import Asker, Reply, bearer
from router.app.doctor.engines import Place, Row


@dataclass(frozen=True, slots=True)
class Target:
    """What doctor was asked to look at, and with which keys."""

    router: str
    admin: str
    replicas: tuple[str, ...] = ()
    """Engines' addresses given by hand."""
    model: str | None = None
    client_key: str | None = None
    admin_token: str | None = None
    engine_key: str | None = None


@dataclass(frozen=True, slots=True)
class RouterView:
    """A router, as it showed itself."""

    live: Reply
    ready: Reply
    models: Reply
    fleet: Reply
    """The answer to /api/fleet."""
    schema: Reply
    """The admin API's description, which has the version."""
    replicas: list[Row] = field(default_factory=list)

    @property
    def reachable(self) -> bool:
        """Tell whether the client port answers at all."""
        return self.live.status > 0

    @property
    def version(self) -> str | None:
        """The router's release."""
        told = self.schema.told.get("info")
        version = told.get("version") if isinstance(told, dict) else None
        return version if isinstance(version, str) else None

    @property
    def about(self) -> dict[str, Any]:
        """What /api/fleet says; empty where it can't be read."""
        return self.fleet.told if self.fleet.ok else {}

    @property
    def served(self) -> list[str]:
        """Names of the models that clients can ask for."""
        rows = self.models.told.get("data") if self.models.ok else None
        return [row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)] if rows else []


async def look_at_router(asker: Asker, target: Target) -> RouterView:
    """Ask a router all that it tells without being made to work."""
    client, admin = bearer(target.client_key), bearer(target.admin_token)
    live, ready, models, fleet, schema = await asyncio.gather(
        asker.get(target.router + "/livez"),
        asker.get(target.router + "/readyz"),
        asker.get(target.router + "/v1/models", client),
        asker.get(target.admin + "/api/fleet", admin),
        asker.get(target.admin + "/openapi.json", admin),
    )
    rows = fleet.told.get("replicas") if fleet.ok else None
    known = [row for row in rows if isinstance(row, dict) and {"id", "url"} <= row.keys()] if rows else []
    return RouterView(live, ready, models, fleet, schema, known)


def places_of(view: RouterView, target: Target) -> list[Place]:
    """Return the engines to be looked at: the router's, then those given by hand. Ranks of one engine are one place."""
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in view.replicas:
        rows[row["url"]].append(row)
    for url in target.replicas:
        rows.setdefault(url, [])
    return [Place(url, tuple(known)) for url, known in rows.items()]
