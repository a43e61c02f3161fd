"""docs/reference/endpoints.md has every path, of the client port and of the admin port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
from fastapi import FastAPI

from router.adapters.decision_log import KEPT
from router.app.admin.api import admin_app
from router.app.admin.describe import describe_all
from router.app.house import House
from router.app.public import public_app
from router.app.settings.model import Settings
from router.app.wiring import build
from router.core.types import EngineReport
from router.proxy.openai import SHAPES
from router.proxy.targets import ENGINE_PATHS, ENGINE_PREFIXES, is_proxied
from tests.contract.pages import DOCS, code, codes, section, table

PAGE = DOCS / "reference" / "endpoints.md"
OWN, SENT, ADMIN = "Client port: answered by the router", "Client port: sent to a replica", "Admin port"


@pytest.fixture
async def house() -> AsyncIterator[House]:
    house = build(Settings(replica=("http://replica.example:8000",)))
    yield house
    await house.client.aclose()


def routes(app: FastAPI) -> dict[str, str]:
    """Path -> methods, without the HEAD that FastAPI adds to its own pages and their OAuth redirect."""
    found: dict[str, set[str]] = {}
    for route in app.routes:
        path, methods = getattr(route, "path", ""), set(getattr(route, "methods", None) or ())
        if not path.endswith("/oauth2-redirect"):
            found.setdefault(path, set()).update(methods - {"HEAD"})
    return {path: ", ".join(sorted(methods)) for path, methods in found.items()}


def documented(heading: str) -> dict[str, str]:
    return {code(path): methods for path, methods, _ in table(PAGE, heading)}


async def test_the_routers_own_paths_on_the_client_port(house: House) -> None:
    assert documented(OWN) == routes(public_app(house))
    for path in documented(OWN):
        assert not is_proxied(b"GET", path)


async def test_the_paths_of_the_admin_port(house: House) -> None:
    assert documented(ADMIN) == routes(admin_app(house))
    assert f"The last {KEPT:,} requests" in section(PAGE, ADMIN)


def test_the_prefixes_and_paths_that_go_to_replicas() -> None:
    assert [code(row[0]) for row in table(PAGE, SENT, 0)] == list(ENGINE_PREFIXES)
    assert [code(row[0]) for row in table(PAGE, SENT, 1)] == sorted(ENGINE_PATHS)


def test_what_the_page_calls_not_proxied_is_not() -> None:
    named = [path for path in codes(section(PAGE, SENT)) if path in ("/metrics", "/sleep", "/reset_prefix_cache")]
    assert len(named) == 3
    for path in (*named, "/v1/../metrics", "/v1/./x"):
        assert not is_proxied(b"POST", path)


def test_the_shapes_of_bodies() -> None:
    assert {code(path): shape for path, shape in table(PAGE, SENT, 2)} == SHAPES


async def test_the_fields_of_a_replica(house: House) -> None:
    (described,) = describe_all(house)
    engine = described.pop("engine")
    assert [code(row[0]) for row in table(PAGE, ADMIN, 1)] == [*flat(described), "engine"]
    meaning = next(row[1] for row in table(PAGE, ADMIN, 1) if row[0] == "`engine`")
    assert [name for name in codes(meaning) if name != "/metrics"] == list(engine)
    assert list(engine) == list(msgspec.to_builtins(EngineReport()))


def flat(described: dict[str, Any]) -> Iterator[str]:
    for name, value in described.items():
        if isinstance(value, dict) and value:
            yield from (f"{name}.{inner}" for inner in value)
        else:
            yield name
