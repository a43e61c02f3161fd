"""Holders: always what the mirrors say, read the other way round."""

from __future__ import annotations

import gc
import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from router.core.holders import HOLDER_BYTES, Holders
from router.core.leases import Lease
from router.core.replica import Replica
from router.core.types import Prompt

FAMILIES = 4
LONGEST = 6


def prompt_of(family: int, blocks: int) -> Prompt:
    """Return a prompt of 10 bytes a block; families differ from their third block on."""
    hashes = [1 + number if number < 2 else 100 * family + number for number in range(blocks)]
    return Prompt(hashes, [10 * (number + 1) for number in range(blocks)], [], None)


def everybody(replicas: list[Replica]) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for replica in replicas:
        for block in replica.mirror.blocks():
            assert replica.mirror.holds(block)
            found.setdefault(block, set()).add(replica.replica_id)
    return found


Step = tuple[str, int, int, int]
steps = st.tuples(
    st.sampled_from(["send", "send", "answer", "fail", "shrink", "restart", "unused"]),
    st.integers(0, 2),
    st.integers(1, FAMILIES),
    st.integers(1, LONGEST),
)


class World:
    """Three replicas with caches of 12 blocks."""

    def __init__(self) -> None:
        self.replicas = [Replica(f"r{number}", 8_000.0) for number in range(3)]
        for replica in self.replicas:
            replica.mirror.capacity_bytes = 120
        self.leases: list[list[Lease]] = [[], [], []]

    def step(self, what: str, number: int, prompt: Prompt, now: float) -> None:
        mirror, leases = self.replicas[number].mirror, self.leases[number]
        if what == "send":
            leases.append(mirror.acquire(prompt, mirror.match(prompt.hashes)))
        elif what in {"answer", "fail"} and leases:
            mirror.release(leases.pop(0), now, computed=what == "answer", answer_bytes=5)
        elif what == "shrink":
            mirror.evict_to(30)
        elif what == "restart":
            mirror.clear()
        elif what == "unused":
            mirror.evict_unused_since(int(now * 1000) - 4_000)


@settings(max_examples=200)
@given(st.lists(steps, max_size=40), st.integers(0, 40))
def test_holders_are_those_whose_mirrors_hold_it(happened: list[Step], followed_from: int) -> None:
    world, holders = World(), Holders()
    for now, (what, number, family, blocks) in enumerate(happened):
        if now == followed_from:
            for replica in world.replicas:
                holders.follow(replica)
        world.step(what, number, prompt_of(family, blocks), float(now))
        if now >= followed_from:
            known = range(1, 100 * FAMILIES + LONGEST)
            told = {block: {one.replica_id for one in holders.of(block)} for block in known}
            assert {block: names for block, names in told.items() if names} == everybody(world.replicas)
            assert len(holders) == len(everybody(world.replicas))


def test_levels_go_from_who_holds_most_to_all_who_hold_anything() -> None:
    replicas = [Replica(f"r{number}", 8_000.0) for number in range(4)]
    holders = Holders()
    for replica, blocks in zip(replicas, (2, 6, 2, 4), strict=True):
        holders.follow(replica)
        replica.mirror.acquire(prompt_of(1, blocks), 0)
    levels = [{one.replica_id for one in level} for level in holders.levels(prompt_of(1, 8).hashes)]
    assert levels == [{"r1"}, {"r1", "r3"}, {"r0", "r1", "r2", "r3"}]
    other = [{one.replica_id for one in level} for level in holders.levels(prompt_of(2, 8).hashes)]
    assert other == [{"r0", "r1", "r2", "r3"}]
    assert list(holders.levels([999])) == []


def test_a_replica_that_has_left_holds_nothing_any_more() -> None:
    first, second = Replica("r0", 8_000.0), Replica("r1", 8_000.0)
    holders = Holders()
    holders.follow(first)
    holders.follow(second)
    lease = first.mirror.acquire(prompt_of(1, 4), 0)
    second.mirror.acquire(prompt_of(1, 2), 0)
    holders.forget(first)
    first.mirror.release(lease, 1.0)
    assert holders.of(1) == [second]
    assert len(holders) == 2


def test_memory_of_a_block() -> None:
    worst = 0.0
    for blocks in (11_000, 22_000, 44_000, 88_000):
        hashes = [(1 << 63) + number * 7_919 for number in range(blocks)]
        replica = Replica("r0", 8_000.0)
        Holders().follow(replica)
        watch = replica.mirror.watch
        assert watch is not None
        gc.collect()
        tracemalloc.start()
        watch.came(hashes)
        worst = max(worst, tracemalloc.get_traced_memory()[1] / blocks)
        tracemalloc.stop()
    assert HOLDER_BYTES / 2 < worst <= HOLDER_BYTES
