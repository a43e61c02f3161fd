import sys

import msgspec
import pytest
import xxhash

from router.core.bounded import LINK_BYTES
from router.core.fleet import Fleet
from router.core.prompt import session_hash
from router.core.residency import ENTRY_BYTES
from router.core.snapshot import LAYOUT, Releases, Snapshot, restore, restore_replica, take, taking
from router.core.token_size import TokenSize
from router.core.types import EngineReport, Outcome, OutcomeKind, RoutingRequest, Usage
from tests.core.worlds import SCOPE, answered, chat, fleet_of, prompt

STORY = "a long story, " * 300


def talk(number: int, turns: int = 1) -> RoutingRequest:
    said = [(("user", "assistant")[turn % 2], f"{number} {turn} {STORY}") for turn in range(2 * turns - 1)]
    return chat(*said, session=str(number))


def copied(snapshot: Snapshot) -> Snapshot:
    """The snapshot as it comes back from a file."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(snapshot), type=Snapshot)


def successor(
    fleet: Fleet, now: float = 1_000.0, later: float = 5.0, count: int | None = None, index_bytes: int = 64 << 20
) -> Fleet:
    """What a restart makes of a fleet: no report was read, and the clock is another one."""
    heir = Fleet(index_bytes=index_bytes)
    for number in range(len(fleet) if count is None else count):
        heir.add(f"r{number}")
    restore(heir, copied(take(fleet, now)), later)
    return heir


def matches(fleet: Fleet, request: RoutingRequest) -> list[int]:
    assert request.prompt is not None
    return [replica.mirror.match(request.prompt.hashes) for replica in fleet]


def test_the_next_turn_is_predicted_as_the_fleet_before_would_have() -> None:
    fleet = fleet_of(3)
    for number in range(9):
        answered(fleet, talk(number), now=number)
    heir = successor(fleet)
    for number in range(9):
        before, after = fleet.explain(talk(number, 2), 1_000.0), heir.explain(talk(number, 2), 5.0)
        assert (after.reason, after.replica) == ("warm", before.replica)
        assert (after.prompt_tokens, after.matched_tokens) == (before.prompt_tokens, before.matched_tokens)
        assert after.home == before.home


def test_a_replica_that_is_found_later_is_remembered_too() -> None:
    fleet = fleet_of(3)
    for number in range(9):
        answered(fleet, talk(number), now=number)
    kept, heir = copied(take(fleet, 1_000.0)), Fleet()
    restore(heir, kept, 5.0)
    for name in ("r2", "r0", "r1"):
        heir.add(name)
        restore_replica(heir, kept, name, 6.0)
    for number in range(9):
        before, after = fleet.explain(talk(number, 2), 1_000.0), heir.explain(talk(number, 2), 7.0)
        assert (after.reason, after.replica, after.home) == ("warm", before.replica, before.home)


def test_answers_are_kept() -> None:
    fleet = fleet_of(1)
    request = talk(1)
    answered(fleet, request, now=1.0, answer_tokens=500)
    heir = successor(fleet)
    assert request.prompt is not None
    assert heir["r0"].mirror.holds_answer(request.prompt.hashes[-1])
    assert heir["r0"].mirror.idle_bytes == fleet["r0"].mirror.idle_bytes
    answered(heir, talk(1, 2), now=6.0)
    assert not heir["r0"].mirror.holds_answer(request.prompt.hashes[-1])


def test_blocks_of_a_request_in_flight_are_idle_and_the_last_to_go() -> None:
    fleet = fleet_of(1)
    answered(fleet, talk(1), now=1.0)
    running = fleet.route(talk(2), 2.0)
    answered(fleet, talk(3), now=3.0)
    heir = successor(fleet)
    mirror = heir["r0"].mirror
    assert (mirror.held_bytes, mirror.idle_bytes) == (0, fleet["r0"].mirror.held_bytes + fleet["r0"].mirror.idle_bytes)
    kept = matches(heir, talk(2))
    assert running.lease is not None
    assert kept == [len(running.lease.hashes)]
    mirror.evict_entries(len(mirror) - kept[0])
    assert (matches(heir, talk(1)), matches(heir, talk(3)), matches(heir, talk(2))) == ([0], [0], kept)


def test_of_what_ran_at_once_is_kept_what_the_engine_has_room_for() -> None:
    fleet = fleet_of(1, kv_tokens=1_500)
    answered(fleet, talk(1), now=1.0)
    for number in (2, 3):
        fleet.route(talk(number), 2.0)
    assert fleet["r0"].mirror.held_bytes > 6_000, "both are held, which is more than 1,500 tokens of four bytes"
    heir = successor(fleet)
    assert heir["r0"].mirror.capacity_bytes == 6_000.0
    assert 5_000 < heir["r0"].mirror.idle_bytes <= 6_000
    asked = talk(3).prompt
    assert asked is not None
    assert matches(heir, talk(3)) == [len(asked.hashes)], "the last to be sent is the last to go"


def test_a_request_that_never_reached_the_engine_is_not_kept() -> None:
    fleet = fleet_of(1)
    answered(fleet, talk(1), now=1.0)
    failed = fleet.route(talk(1, 3), 2.0)
    fleet.settle(failed, Outcome(OutcomeKind.REFUSED), 2.0)
    assert matches(successor(fleet), talk(1, 3)) == matches(fleet, talk(1, 3)) == matches(fleet, talk(1))


def test_blocks_go_in_the_same_order_also_between_replicas() -> None:
    fleet = fleet_of(2)
    for number in range(8):
        answered(fleet, talk(number), now=float(number))
    heir = successor(fleet)
    left = [sum(matches(heir, talk(number))) for number in range(8)]
    limit = heir.index.size_bytes // ENTRY_BYTES * ENTRY_BYTES // 2
    small = successor(heir, now=5.0, index_bytes=limit)
    kept = [sum(matches(small, talk(number))) for number in range(8)]
    gone = [number for number in range(8) if not kept[number]]
    assert gone and gone == list(range(len(gone))), "the least recently used go first"
    assert kept[len(gone) + 1 :] == left[len(gone) + 1 :]


def test_a_smaller_index_keeps_its_budget() -> None:
    fleet = fleet_of(3)
    for number in range(60):
        answered(fleet, talk(number), now=float(number))
    limit = 300 * ENTRY_BYTES
    heir = successor(fleet, index_bytes=limit)
    blocks, links = sum(len(replica.mirror) for replica in heir), len(heir.index.turns) + len(heir.index.homes)
    assert heir.index.size_bytes == blocks * ENTRY_BYTES + links * LINK_BYTES <= limit
    assert session_hash(SCOPE, "59") in heir.index.homes
    assert session_hash(SCOPE, "0") not in heir.index.homes


def test_a_machine_that_was_started_again_has_a_younger_clock() -> None:
    """Stamps from before the machine's start stay in order, and none is negative, which would mean: in use."""
    fleet = fleet_of(1)
    for number in range(5):
        answered(fleet, talk(number), now=1_000.0 + number)
    heir = successor(fleet, now=90_000.0, later=2.0)
    ticket = heir.route(talk(3, 2), 2.0)
    assert ticket.lease is not None and ticket.lease.stale_stamp >= 0
    heir["r0"].mirror.evict_unused_since(ticket.lease.stale_stamp)
    assert [matches(heir, talk(number)) != [0] for number in range(5)] == [False, False, False, True, True]


def test_replicas_that_are_not_configured_any_more_are_left_out_and_so_are_homes_there() -> None:
    fleet = fleet_of(3)
    homes = {number: answered(fleet, talk(number), now=number).replica.replica_id for number in range(9)}
    assert set(homes.values()) == {"r0", "r1", "r2"}
    heir = successor(fleet, count=2)
    for number, home in homes.items():
        expected = None if home == "r2" else home
        assert heir.index.homes.get(session_hash(SCOPE, str(number))) == expected
    assert "r2" not in heir


def test_homes_of_replicas_that_had_left_before_are_left_out() -> None:
    fleet = fleet_of(2)
    homes = {number: answered(fleet, talk(number), now=number).replica.replica_id for number in range(6)}
    fleet.remove("r1")
    heir = successor(fleet)
    known = {number: heir.index.homes.get(session_hash(SCOPE, str(number))) for number in range(6)}
    assert known == {number: home if home == "r0" else None for number, home in homes.items()}


def test_an_engine_that_restarted_meanwhile_is_told_by_its_first_report() -> None:
    fleet = fleet_of(2)
    fleet.observe_engine("r1", EngineReport(prefix_queries_tokens=500.0))
    for number in range(6):
        answered(fleet, talk(number), now=number)
    heir = successor(fleet)
    assert heir["r0"].report.start_time_s == 1.0
    assert not heir.observe_engine("r0", EngineReport(start_time_s=1.0, kv_tokens=100_000))
    assert len(heir["r0"].mirror) == len(fleet["r0"].mirror) > 0
    assert heir.observe_engine("r0", EngineReport(start_time_s=99.0))
    assert heir.observe_engine("r1", EngineReport(prefix_queries_tokens=20.0))
    assert [len(replica.mirror) for replica in heir] == [0, 0]


def test_gauges_are_not_kept() -> None:
    fleet = fleet_of(1)
    fleet.observe_engine("r0", EngineReport(running=9, waiting=9, kv_usage_ratio=1.0, kv_tokens=7, asleep=True))
    report = successor(fleet)["r0"].report
    assert report == EngineReport(kv_tokens=7, block_tokens=16, start_time_s=1.0)


def test_learnt_speeds_are_kept() -> None:
    fleet = fleet_of(1)
    for number in range(20):
        fleet["r0"].prefill.observe(2_000 + 100 * number, 0, 1.0)
        fleet["r0"].decode.observe(4.0, 8_000.0, 0.05)
    heir = successor(fleet)["r0"]
    assert heir.prefill.measured
    assert heir.prefill.tokens_per_s == fleet["r0"].prefill.tokens_per_s != 8_000.0
    assert heir.decode.step_s(4.0, 8_000.0) == fleet["r0"].decode.step_s(4.0, 8_000.0)


def test_return_times_and_the_kinds_of_turns_are_kept() -> None:
    fleet = fleet_of(1)
    answered(fleet, talk(1), now=1.0)
    answered(fleet, talk(1, 2), now=9.0)
    answered(fleet, talk(2), now=60.0)
    heir = successor(fleet)
    assert heir.returns.state == fleet.returns.state
    kinds = {release.kind for release in fleet["r0"].mirror.releases(60.0) if len(release)}
    assert kinds <= {release.kind for release in heir["r0"].mirror.releases(60.0)}
    assert len(kinds) > 1


def test_what_was_learnt_of_tokens_is_kept() -> None:
    size, other = TokenSize(), TokenSize()
    size.observe(3_000, 1_000)
    size.observe_answer(0.2)
    other.resume(*size.learnt)
    assert (other.bytes_per_token, other.answer_reuse_ratio) == (size.bytes_per_token, size.answer_reuse_ratio)
    fleet = fleet_of(1)
    fleet.size_of("m").observe(9_000, 1_000)
    assert successor(fleet).sizes["m"].bytes_per_token == fleet.sizes["m"].bytes_per_token != 4.0


def test_token_counts_too_large_to_be_packed_are_left_out() -> None:
    fleet = fleet_of(1)
    answered(fleet, talk(1), now=1.0)
    fleet.index.turns.put(prompt(("user", STORY)), 1 << 60, 0)
    heir = successor(fleet)
    assert len(heir.index.turns) == len(fleet.index.turns) - 1
    assert heir.explain(talk(1, 2), 5.0).reason == "warm"


def test_between_its_steps_the_fleet_may_go_on() -> None:
    fleet = fleet_of(3)
    for number in range(9):
        answered(fleet, talk(number), now=number)
    steps = taking(fleet, 1_000.0)
    for number in range(100):
        try:
            next(steps)
        except StopIteration as done:
            snapshot = done.value
            break
        answered(fleet, talk(number % 9, 2 + number // 9), now=1_000.0)
    heir = Fleet()
    for number in range(3):
        heir.add(f"r{number}")
    restore(heir, copied(snapshot), 5.0)
    assert all(heir.explain(talk(number, 2), 5.0).reason == "warm" for number in range(9))


def test_an_empty_fleet_has_a_snapshot_too() -> None:
    assert len(successor(Fleet(), count=1)) == 1


def test_columns_that_do_not_fit_each_other_are_refused() -> None:
    fleet = fleet_of(1)
    answered(fleet, talk(1), now=1.0)
    columns = [getattr(take(fleet, 2.0).replicas[0].releases, name) for name in Releases.__struct_fields__]
    for number in range(len(columns)):
        wrong = [*columns]
        name = Releases.__struct_fields__[number]
        wrong[number] = b"" if name in {"hashes", "ends_bytes"} else msgspec.msgpack.encode([1, 2, 3])
        with pytest.raises(msgspec.ValidationError, match="different lengths"):
            msgspec.msgpack.decode(msgspec.msgpack.encode(wrong), type=Releases)


@pytest.mark.skipif(sys.byteorder == "big", reason="another order of bytes has files of its own")
def test_a_change_of_the_layout_changes_its_number() -> None:
    """Where this fails, `LAYOUT` must grow: files of the layout before would be misread."""
    fleet = fleet_of(1)
    request = chat(("user", "x" * 600), session="s")
    ticket = fleet.route(request, 1.0)
    usage = Usage(prompt_tokens=150, cached_tokens=0, completion_tokens=10)
    fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200, usage), 2.0)
    encoded = msgspec.msgpack.encode(take(fleet, 3.0))
    assert (LAYOUT, xxhash.xxh3_64_hexdigest(encoded)) == (2, "0a76beb55d21e93c")
