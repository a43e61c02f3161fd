"""The decoder on recorded bytes, and on every form that a release of vLLM writes."""

from array import array
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.adapters.kv_events.decode import BatchError, Cleared, Reader, RemovedFrom, StoredIn, label_of
from router.core.engine_cache.types import Medium, Stored
from router.core.token_ids import token_scope
from tests.adapters.kv_events.recorded import REMOVED, SALTED, STORED

BLOCK = 0x1CAA4B21D1D61E77
NAMES = (
    "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys",
    "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window", "locality", "ownership", "session_id",
)  # fmt: skip
FIELDS: dict[str, Any] = {
    "block_hashes": [BLOCK, 7], "parent_block_hash": 5, "token_ids": [1, 2, 3, 4], "block_size": 2, "lora_id": None,
    "medium": "GPU",
}  # fmt: skip
MEANT = StoredIn(Stored([BLOCK, 7], 5, array("I", [1, 2, 3, 4]), 2, None), Medium.GPU)


def read(batch: object) -> list[object]:
    return list(Reader().read(msgspec.msgpack.encode(batch)).events)


def as_map(**changes: Any) -> list[object]:
    return [1.5, [{"type": "BlockStored"} | FIELDS | changes], 0]


def as_array(**changes: Any) -> list[object]:
    values = FIELDS | changes
    return [1.5, [["BlockStored", *(values.get(name) for name in NAMES)]], 0]


def test_recorded_blocks() -> None:
    batch = Reader().read(STORED)
    tokens = array("I", range(300, 364))
    hashes = [2065545987729268343, 4118834454899676085]
    stored = Stored(hashes, None, tokens, 32, token_scope(None, None), None, label_of("abc"))
    assert batch == ([StoredIn(stored, Medium.GPU)], 0)


def test_recorded_salt_is_part_of_the_scope() -> None:
    [event] = Reader().read(SALTED).events
    assert isinstance(event, StoredIn)
    assert (event.stored.scope, event.stored.label) == (token_scope(None, "tenant-1"), None)
    assert event.stored.foreign is None


def test_recorded_removals_come_before_what_they_made_room_for() -> None:
    *removed, stored = Reader().read(REMOVED).events
    assert removed
    assert isinstance(stored, StoredIn)
    assert len(stored.stored.token_ids) == 96
    assert all(isinstance(event, RemovedFrom) and event.medium is Medium.GPU for event in removed)


@pytest.mark.parametrize("form", [as_map, as_array])
def test_maps_and_arrays_say_the_same(form: Any) -> None:
    assert read(form()) == [MEANT]
    [_, events, rank] = form()
    assert read({"ts": 1.5, "events": events, "data_parallel_rank": rank}) == [MEANT]
    assert read([1.5, events]) == [MEANT]
    short = [["BlockStored", *(FIELDS.get(name) for name in NAMES[:5])]]
    assert read([1.5, short, 0]) == [MEANT], "arrays of old releases end with the adapter's number"


@pytest.mark.parametrize("form", [as_map, as_array])
def test_hashes_of_32_bytes_are_known_by_their_last_8(form: Any) -> None:
    whole = bytes(24) + BLOCK.to_bytes(8, "big"), b"\xff" * 24 + (7).to_bytes(8, "big")
    assert read(form(block_hashes=whole, parent_block_hash=(5).to_bytes(32, "big"))) == [MEANT]
    signed = BLOCK | 1 << 63
    assert read(form(block_hashes=[signed - (1 << 64), 7]))[0].stored.hashes[0] == signed  # type: ignore[attr-defined]


@pytest.mark.parametrize("form", [as_map, as_array])
def test_scopes_and_what_is_no_text(form: Any) -> None:
    def stored(**changes: Any) -> Stored:
        [event] = read(form(parent_block_hash=None, **changes))
        assert isinstance(event, StoredIn)
        return event.stored

    assert stored(lora_name="sql", extra_keys=[["sql"], ["sql"]])[4:6] == (token_scope("sql", None), None)
    assert stored(lora_name="sql", extra_keys=[["sql", "t"], ["sql"]])[4:6] == (token_scope("sql", "t"), None)
    assert stored(extra_keys=[["t"], None])[4:6] == (token_scope(None, "t"), None)
    image = stored(extra_keys=[[["image-digest", 3], "t"], [["image-digest", -13]]])
    assert image.scope == token_scope(None, "t")
    assert image.foreign is not None
    assert len(set(image.foreign)) == 2
    assert 0 not in image.foreign


@pytest.mark.parametrize(
    ("name", "locality", "medium"),
    [
        ("GPU", None, Medium.GPU), (None, None, Medium.GPU), ("CPU", None, Medium.CPU), ("CPU", "LOCAL", Medium.CPU),
        ("CPU", "REMOTE", Medium.DISK), ("STORAGE", None, Medium.DISK), ("something else", None, Medium.DISK),
    ],
)  # fmt: skip
def test_media(name: str | None, locality: str | None, medium: Medium) -> None:
    removed = {"type": "BlockRemoved", "block_hashes": [1], "medium": name, "locality": locality}
    assert read([1.5, [removed], 0]) == [RemovedFrom([1], medium)]


def test_a_placeholder_names_a_block() -> None:
    [event] = read(as_map(parent_block_hash=None, block_hashes=[9], token_ids=[], block_size=0, medium="CPU"))
    assert event == StoredIn(Stored([9], None, array("I"), 0, token_scope(None, None)), Medium.CPU)


@pytest.mark.parametrize("cleared", [["AllBlocksCleared"], {"type": "AllBlocksCleared"}])
def test_cleared(cleared: object) -> None:
    assert read([1.5, [cleared], 0]) == [Cleared()]


def test_unknown_events_and_fields_are_passed_over() -> None:
    unknown: list[object] = [{"type": "BlockMoved", "x": 1}, ["BlockMoved", 1], [], {}, 7, "BlockStored"]
    fields = {"type": "BlockRemoved", "block_hashes": [1], "medium": "GPU", "new": {"deep": [1]}}
    assert read([1.5, [*unknown, fields, ["BlockRemoved", [2], "GPU", 0, None, None, "new"]], 0, "new"]) == [
        RemovedFrom([1], Medium.GPU),
        RemovedFrom([2], Medium.GPU),
    ]


def test_groups_of_layers_that_keep_a_window_are_passed_over() -> None:
    reader = Reader()
    windowed = as_map(group_idx=1, kv_cache_spec_kind="sliding_window", kv_cache_spec_sliding_window=128)
    removed = [1.5, [{"type": "BlockRemoved", "block_hashes": [1], "medium": "GPU", "group_idx": 1}], 0]
    own = [1.5, [{"type": "BlockRemoved", "block_hashes": [1], "medium": "GPU", "group_idx": 0}], 0]
    assert [reader.read(msgspec.msgpack.encode(batch)).events for batch in (windowed, removed, own)] == [
        [], [], [RemovedFrom([1], Medium.GPU)]
    ]  # fmt: skip


def test_the_rank_is_told() -> None:
    assert Reader().read(msgspec.msgpack.encode([1.5, [], 3])).rank == 3
    assert Reader().read(msgspec.msgpack.encode([1.5, [], None])).rank is None


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"\xc1", STORED[:-20], b"\x00", msgspec.msgpack.encode("text"), msgspec.msgpack.encode({"events": 1}),
        msgspec.msgpack.encode([1.5]), msgspec.msgpack.encode([1.5, [["BlockStored", "text"]], 0]),
        msgspec.msgpack.encode(as_map(token_ids=[-1])), msgspec.msgpack.encode(as_map(block_hashes=[1.5])),
        msgspec.msgpack.encode(as_map(token_ids=[1 << 40])), msgspec.msgpack.encode(as_map(extra_keys=[["a"]])),
        msgspec.msgpack.encode(as_map(block_size="2")), msgspec.msgpack.encode(as_map(lora_name=7)),
    ],
)  # fmt: skip
def test_garbage_raises_one_error(payload: bytes) -> None:
    with pytest.raises(BatchError):
        Reader().read(payload)


@given(st.binary(max_size=200) | st.builds(lambda at, value: STORED[:at] + bytes([value]) + STORED[at + 1 :],
                                          st.integers(0, len(STORED) - 1), st.integers(0, 255)))  # fmt: skip
def test_any_bytes_are_read_or_refused(payload: bytes) -> None:
    try:
        events = Reader().read(payload).events
    except BatchError:
        return
    assert all(isinstance(event, StoredIn | RemovedFrom | Cleared) for event in events)
