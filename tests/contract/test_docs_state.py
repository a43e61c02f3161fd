"""docs/reference/state.md: every field that is kept stands there, and what stands there is kept."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
import xxhash
from msgspec import inspect

from router.adapters.history import kept
from router.adapters.redis_store import allowances, encoding, ordering
from router.adapters.redis_store.sealing import CHECK_BYTES, HASH_BYTES, Keyring
from router.adapters.state_file import Saved, read, write
from router.core.allowance import WINDOW_S
from router.core.history.layout import LAYOUT as HISTORY_LAYOUT
from router.core.history.windows import COARSE_S, FINE_S
from router.core.news import Bulletin
from router.core.orders import KEEP_MS, MAX_ORDERS, Order
from router.core.prompt import scope_hash, session_hash
from router.core.snapshot import _NOWHERE, LAYOUT, Snapshot
from router.sim.replica import SimReplica
from tests.contract.pages import DOCS, code, codes, section, table
from tests.core.worlds import prompt
from tests.redis_server import running_redis
from tests.rig.client import request
from tests.rig.stage import Stage

PAGE = DOCS / "reference" / "state.md"

FILE = (Saved,)
HISTORY = (kept.Kept,)
KEY = [("authorization", "Bearer sk-one")]

REDIS = (encoding._Turn, list[Order], encoding.Envelope, Bulletin, allowances._Told)


def parts(*kinds: Any) -> dict[str, tuple[str, list[str]]]:
    """All structures that these consist of: name -> form, fields."""
    found: dict[str, tuple[str, list[str]]] = {}
    for kind in kinds:
        for part in structures(inspect.type_info(kind), set()):
            found[part.cls.__name__.removeprefix("_")] = form(part), [field.name for field in part.fields]
    return found


def form(part: inspect.StructType | inspect.NamedTupleType) -> str:
    if isinstance(part, inspect.NamedTupleType):
        return "list"
    assert part.tag is None or part.array_like
    return "map" if not part.array_like else "list" if part.tag is None else f"list, begins with {part.tag}"


def structures(kind: inspect.Type, seen: set[type]) -> Iterator[inspect.StructType | inspect.NamedTupleType]:
    inner: list[inspect.Type] = []
    if isinstance(kind, inspect.StructType | inspect.NamedTupleType):
        if kind.cls in seen:
            return
        seen.add(kind.cls)
        yield kind
        inner = [field.type for field in kind.fields]
    elif isinstance(kind, inspect.TupleType):
        inner = list(kind.item_types)
    elif isinstance(kind, inspect.UnionType):
        inner = list(kind.types)
    elif isinstance(kind, inspect.DictType):
        inner = [kind.key_type, kind.value_type]
    elif isinstance(kind, inspect.CollectionType):
        inner = [kind.item_type]
    for one in inner:
        yield from structures(one, seen)


def written(heading: str, number: int) -> dict[str, tuple[str, list[str]]]:
    return {code(row[0]): (row[1], codes(row[2])) for row in table(PAGE, heading, number)}


@pytest.mark.parametrize(
    ("heading", "number", "kinds"),
    [("The state file", 1, FILE), ("The history in it", 0, HISTORY), ("In Redis", 1, REDIS)],
)
def test_every_field_that_is_kept(heading: str, number: int, kinds: tuple[Any, ...]) -> None:
    assert written(heading, number) == parts(*kinds)


def test_the_head_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write(path, Saved(bytes(16), Snapshot(0, [], [], [], {}, ())))
    head, _, rest = path.read_bytes().partition(b"\n")
    rows = table(PAGE, "The state file")
    assert codes(rows[0][2]) == [head.decode().replace(sys.byteorder, "little")]
    assert rest[: int(rows[1][1])] == xxhash.xxh3_128_digest(rest[int(rows[1][1]) :])
    assert path.stat().st_mode & 0o777 == 0o600
    assert "the mode 0600" in section(PAGE, "The state file")


def test_another_head_is_refused_as_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (begins, *_), *_ = (codes(row[0]) for row in table(PAGE, "What makes it be refused"))
    path = tmp_path / "state"
    path.write_bytes(begins.encode().replace(b"state", b"notes") + b"1 little\n")
    assert read(path) is None
    assert "is not a state file" in caplog.text
    with pytest.raises(FileExistsError):
        write(path, Saved(bytes(16), Snapshot(0, [], [], [], {}, ())))


def test_the_numbers() -> None:
    text = " ".join(PAGE.read_text().split())
    for words in (
        f"| of the state file, in its head | {LAYOUT} |",
        f"| of the history in it | {HISTORY_LAYOUT} |",
        f"| of Redis, in every name | {encoding.VERSION} |",
        f"`layout` is {HISTORY_LAYOUT}",
        f"{_NOWHERE} for a replica",
        f"the last {kept.MAX_RUNS}. ",
        f"steps of {FINE_S:g} s of the last hour, `coarse` of {COARSE_S:g} s",
        f"Of {kept.MAX_SESSIONS} sessions the last {kept.MAX_TURNS} turns",
        f"stand {HASH_BYTES} bytes",
        f"{CHECK_BYTES}-byte hash",
        f"at most {MAX_ORDERS:,} orders",
        "at most 16 replicas",
    ):
        assert words in text, words
    assert b"MAX_HOLDERS = 16" in encoding.WRITE_SCRIPT


def test_names_and_lives_in_redis() -> None:
    names, rows = encoding.Names("warmroute", Keyring(None)), table(PAGE, "In Redis")
    keys = [code(row[0]) for row in rows]
    made = [names.turn(0), names.home(0), names.orders]
    assert keys[:3] == [key[:-HASH_BYTES].decode() for key in made]
    assert keys[3] == names.channel.removesuffix("news") + "a:"
    assert keys[4] == names.channel
    lives = [row[4] for row in rows]
    assert lives[2:4] == [f"{KEEP_MS // 86_400_000} days", f"{WINDOW_S:g} s"]
    shared = [codes(row[0])[0] for row in table(DOCS / "explanation" / "sharing.md", "What stands in Redis")]
    assert shared == keys, "both pages name the same"


async def test_what_a_router_leaves_in_redis(stage: Stage) -> None:
    """Each kind of key appears, expires as the page says, and has the value that it says."""
    ttl_s = 500
    with running_redis() as url, redis.Redis.from_url(url) as client:
        replica: SimReplica = await stage.replica()
        settings: dict[str, Any] = {
            "redis": url,
            "redis_ttl_s": ttl_s,
            "api_keys": "sk-one",
            "key_requests_per_minute": 100,
        }
        router = await stage.router(replica, **settings)
        other = await stage.router(replica, **settings)
        admin, asking = await router.admin(), await stage.client(router)
        drained = next(iter(router.house.endpoints))
        assert (await admin.post(f"/api/replicas/{drained}/drain")).status_code == 200
        body = {"model": "sim-model", "messages": [{"role": "user", "content": "x" * 900}], "session_id": "s"}
        answer = await asking.ask(request("/v1/chat/completions", body, headers=KEY))
        assert answer.status == 200, answer.body
        life_s = {"t:": ttl_s, "h:": ttl_s, "o:": KEEP_MS // 1000, "a:": int(WINDOW_S)}
        found: dict[str, bytes] = {}

        def all_there() -> bool:
            found.update({key[14:16].decode(): key for key in client.scan_iter("{warmroute}:1:*")})
            return set(found) == set(life_s)

        await router.until(all_there)
        for kind, key in found.items():
            assert 0 < client.ttl(key) <= life_s[kind], kind
        values = {kind: client.get(key) for kind, key in found.items()}
        assert encoding._decode_turn(values["t:"]).holders[0][0] == drained
        assert values["h:"].decode() == drained
        assert [order.name for order in ordering.unpack(values["o:"], Keyring(None))] == [drained]
        assert allowances._decode_told(values["a:"]).version == encoding.VERSION
        assert found["a:"][16:].decode() in (router.house.store.router, other.house.store.router)  # type: ignore[union-attr]


def shape(kind: inspect.Type) -> str:
    """A type as text: a change of a field's name, place or kind changes it."""
    found: list[str] = []
    for part in structures(kind, set()):
        fields = [f"{field.name}: {annotation(part.cls, field.name)}" for field in part.fields]
        found.append(f"{part.cls.__name__}({', '.join(fields)})")
    return " ".join(found)


def annotation(owner: type, name: str) -> str:
    """A field's kind as its source has it; named tuples wrap it."""
    kind = owner.__annotations__[name]
    return str(getattr(kind, "__forward_arg__", kind))


@pytest.mark.skipif(sys.byteorder == "big", reason="another order of bytes has other hashes")
def test_a_change_of_what_goes_through_redis_changes_its_number() -> None:
    """Where this fails, `encoding.VERSION` must grow: routers of both kinds would misread each other.

    What is added at a list's end with a default is read by both; then only the digest here changes.
    """
    shapes = "\n".join(shape(inspect.type_info(kind)) for kind in REDIS)
    one = prompt(("system", "x" * 700), ("user", "y" * 100))
    hashes = msgspec.msgpack.encode([one.hashes, one.ends_bytes, session_hash(scope_hash("m"), "s")])
    assert (encoding.VERSION, xxhash.xxh3_64_hexdigest(shapes.encode() + hashes)) == (1, "7cc30a0f4c86d9c4")
