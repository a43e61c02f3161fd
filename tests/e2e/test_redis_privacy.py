"""What stands in Redis and what goes through it: no text, no name, no address; with a secret no hash either."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import redis

from router.core.fleet import Fleet
from router.proxy.openai import stored_object_hash
from router.sim.replica import SimReplica
from tests.redis_server import running_redis
from tests.rig.client import Answer, request
from tests.rig.running import Router
from tests.rig.sharing import store_of
from tests.rig.stage import Stage
from tests.rig.talks import TALKS, AnyTalk

PIECE_BYTES = 12
MODEL = "sim-model"
API_KEY = "key-of-the-harbour-office"
TTL_S = 500
SECRET = "correct horse battery"


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with running_redis("--rdbcompression", "no") as url:
        yield url


class Watcher:
    """Keeps all that goes through Redis, and takes down all that stands in it."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url)
        self._client.flushall()
        self._subscription = self._client.pubsub(ignore_subscribe_messages=False)
        self._subscription.psubscribe("*")
        assert self._next()["type"] == "psubscribe"

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._subscription.close()
        self._client.close()

    def _next(self) -> dict[str, Any]:
        message: Any = self._subscription.get_message(timeout=10.0)
        assert message is not None
        return dict(message)

    def published(self) -> list[bytes]:
        """Return everything published until now, with the names of the channels."""
        self._client.publish("the-end", "")
        heard: list[bytes] = []
        while (message := self._next())["channel"] != b"the-end":
            heard += [message["channel"], message["data"]]
        return heard

    def stored(self) -> list[bytes]:
        """Return the name, the value and the dump of every key; every one must expire."""
        taken: list[bytes] = []
        for key in self._client.scan_iter(count=1_000):
            left_s: Any = self._client.ttl(key)
            assert 0 < left_s <= TTL_S, key
            values: list[Any] = [self._client.get(key), self._client.dump(key)]
            taken += [key, *values]
        return taken


@dataclass
class Run:
    """What two routers were asked, and what came of it."""

    texts: set[str] = field(default_factory=set)
    ids: set[bytes] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    hashes: set[int] = field(default_factory=set)
    stored: list[bytes] = field(default_factory=list)
    published: list[bytes] = field(default_factory=list)


def strings(value: Any) -> Iterator[str]:
    """Every text in a JSON value, names of fields left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def note(run: Run, body: dict[str, Any], answer: Answer) -> None:
    """Keep what was said; of a stream also what its pieces make together."""
    stream = answer.body.startswith((b"data: ", b"event: "))
    said = answer.events() if stream else answer.json()
    run.texts.update(strings(body), strings(said))
    if stream:
        run.texts.add("".join(text for text in strings([_deltas(event) for event in said])))


def _deltas(event: Any) -> Any:
    if not isinstance(event, dict):
        return None
    return [event.get("delta"), *(choice.get("delta", {}).get("content") for choice in event.get("choices", []))]


def note_ids(run: Run, talk: AnyTalk) -> None:
    """Token ids as routers could have passed them on: as numbers of 32 bits, or as JSON."""
    ids = array("I", talk.ids)
    run.ids.add(ids.tobytes())
    ids.byteswap()
    run.ids.add(ids.tobytes())
    run.texts.update((json.dumps(talk.ids), json.dumps(talk.ids, separators=(",", ":"))))


def pieces_of(texts: set[bytes], length: int = PIECE_BYTES) -> set[bytes]:
    return {text[start : start + length] for text in texts for start in range(len(text) - length + 1)}


def found_in(pieces: set[bytes], data: list[bytes], length: int = PIECE_BYTES) -> set[bytes]:
    return {
        part[start : start + length]
        for part in data
        for start in range(len(part) - length + 1)
        if part[start : start + length] in pieces
    }


def hashes_known(fleet: Fleet) -> set[int]:
    """Hashes of all blocks, turn ends, sessions and stored objects that a router knows."""
    known = {key for half in (*fleet.index.turns.halves(), *fleet.index.homes.halves()) for key in half}
    for replica in fleet:
        for release in replica.mirror.releases(0.0):
            known.update(release.unpacked()[0])
    return known


async def talks_in_all_shapes(stage: Stage, routers: list[Router], run: Run) -> None:
    talks = [make(number) for number, make in enumerate(TALKS.values())]
    for turn in range(3):
        for talk in talks:
            session = f"session-of-anna-{talk.number}"
            run.names.add(session)
            headers = [("x-session-id", session), ("authorization", f"Bearer {API_KEY}")]
            body = {"model": MODEL} | talk.ask()
            answer = await stage.ask(routers[(turn + talk.number) % 2], request(talk.path, body, headers=headers))
            assert answer.status == 200, answer.body
            talk.take(answer)
            note(run, body, answer)
            if talk.ids:
                note_ids(run, talk)


async def stored_responses(stage: Stage, routers: list[Router], run: Run) -> None:
    previous: str | None = None
    for number in range(4):
        told = f"Tell me of the {number} lighthouses on the northern coast. " * 20
        body = {"model": MODEL, "input": told, "prompt_cache_key": f"cache-key-of-bert-{number}"}
        if previous is not None:
            body["previous_response_id"] = previous
        answer = await stage.ask(routers[number % 2], request("/v1/responses", body))
        assert answer.status == 200, answer.body
        note(run, body, answer)
        previous = str(answer.json()["id"])
        other, key = routers[1 - number % 2], stored_object_hash(previous)
        await other.until(lambda other=other, key=key: key in other.house.fleet.index.homes, "it is not heard of")  # type: ignore[misc]
        fetched = await stage.ask(other, request(f"/v1/responses/{previous}"))
        assert fetched.status == 200
        run.names.add(previous)


async def run_through(stage: Stage, url: str, secret: str | None) -> Run:
    run = Run(names={MODEL, API_KEY, "127.0.0.1", "localhost", "session-of", "cache-key-of"})
    replicas: list[SimReplica] = await stage.replicas(3)
    run.names.update(replica.url for replica in replicas)
    shared: dict[str, Any] = {"redis": url, "redis_deadline_ms": 500, "redis_ttl_s": TTL_S, "redis_secret": secret}
    with Watcher(url) as watcher:
        routers = [await stage.router(*replicas, watched=True, engine_api_key=API_KEY, **shared) for _ in range(2)]
        for router in routers:
            await router.until(lambda router=router: len(store_of(router).peers) == 1, "nobody is heard")  # type: ignore[misc]
        await talks_in_all_shapes(stage, routers, run)
        await stored_responses(stage, routers, run)
        for router in routers:
            await router.idle()
            store = store_of(router)
            await router.until(lambda store=store: not len(store.outbox), "not all is told")  # type: ignore[misc]
            run.hashes |= hashes_known(router.house.fleet)
        for router in routers:
            await router.stop()  # its last words count, too
        run.stored, run.published = watcher.stored(), watcher.published()
    return run


@pytest.fixture(params=[None, SECRET], ids=["no-secret", "secret"])
async def run(request: pytest.FixtureRequest, stage: Stage, redis_url: str) -> Run:
    run = await run_through(stage, redis_url, request.param)
    assert len(run.stored) > 3 * 40, "keys of turns and homes"
    assert len(run.published) > 2 * 40, "bulletins"
    assert len(run.texts) > 100
    assert len(run.hashes) > 100
    return run


async def test_nothing_that_was_said_is_in_redis(run: Run) -> None:
    pieces = pieces_of({text.encode() for text in run.texts} | run.ids)
    assert len(pieces) > 5_000
    planted = run.published[-1] + b"the tide of case-101 tide"
    assert found_in(pieces_of({b"of case-101 tide"}), [planted]), "the search finds what is there"
    assert found_in(pieces, run.stored + run.published) == set()


async def test_no_name_of_anybody_is_in_redis(run: Run) -> None:
    everything = b"\n".join(run.stored + run.published)
    assert [name for name in [*run.names, SECRET] if name.encode() in everything] == []
    assert [name for name in run.names if name.encode().hex().encode() in everything] == []


async def test_hashes_are_in_redis_without_a_secret_and_not_with_one(run: Run, request: pytest.FixtureRequest) -> None:
    data = run.stored + run.published
    whole = {known.to_bytes(8, order) for known in run.hashes for order in ("big", "little")}
    checks = {known.to_bytes(8, "big")[:6] for known in run.hashes}
    seen, checked = found_in(whole, data, 8), found_in(checks, data, 6)
    if "no-secret" in request.node.name:
        assert len(seen) > len(run.hashes) / 2, "the search finds what is there"
    else:
        assert (seen, checked) == (set(), set())
