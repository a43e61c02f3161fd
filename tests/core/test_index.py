"""One budget for all that is remembered of prompts and sessions."""

from __future__ import annotations

from router.core.bounded import LINK_BYTES
from router.core.index import EVICTION_BATCH, Index
from router.core.residency import ENTRY_BYTES, Mirror
from router.core.types import Prompt
from tests.core.worlds import prompt


def chain(name: int, blocks: int) -> Prompt:
    """A prompt of so many blocks, none of them in another one."""
    return Prompt([(name << 32) + number for number in range(blocks)], [512 * (n + 1) for n in range(blocks)], [], None)


def blocks_that_fit(index: Index, mirror: Mirror) -> int:
    """Fill an index up with idle blocks; its memory is then at its limit."""
    name = 0
    before = -1
    while len(mirror) > before:
        before, name = len(mirror), name + 1
        index.learn(mirror, chain(name, 10), name)
    return before


def index_of(*mirrors: Mirror, limit_bytes: int = 1_000 * ENTRY_BYTES) -> Index:
    index = Index(limit_bytes)
    for mirror in mirrors:
        index.add(mirror)
    return index


def test_blocks_links_and_homes_are_counted_at_their_worst() -> None:
    mirror = Mirror()
    index = index_of(mirror)
    assert index.size_bytes == 0
    learnt = prompt(("user", "a" * 2_000))
    index.learn(mirror, learnt, 1.0)
    index.turns.put(learnt, 500, 10)
    index.homes.put(7, "r0")
    assert index.size_bytes == len(learnt.hashes) * ENTRY_BYTES + 2 * LINK_BYTES


def test_the_budget_holds_whatever_is_learnt() -> None:
    mirrors = [Mirror() for _ in range(3)]
    index = index_of(*mirrors)
    for number in range(400):
        learnt = chain(number, 1 + number % 20)
        index.learn(mirrors[number % 3], learnt, float(number))
        index.turns.put(learnt, 100, 10)
        index.homes.put(number, "r0")
        assert index.size_bytes <= 1_000 * ENTRY_BYTES
    assert index.size_bytes > 800 * ENTRY_BYTES - EVICTION_BATCH * ENTRY_BYTES, "most of the budget is in use"


def full_of_links(mirror: Mirror) -> Index:
    """Return an index with as many turn ends and homes as there ever are, and all the blocks that fit beside them."""
    index = index_of(mirror)
    most = 0
    for number in range(10_000):
        index.turns.put(chain(number, 1), 100, 10)
        index.homes.put(number, "r0")
        if len(index.turns) < most:
            break
        most = len(index.turns)
    for number in range(most - len(index.turns)):
        index.turns.put(chain(20_000 + number, 1), 100, 10)
        index.homes.put(20_000 + number, "r0")
    blocks_that_fit(index, mirror)
    return index


def test_the_budget_holds_when_many_answers_end_one_after_the_other() -> None:
    mirror = Mirror()
    index = full_of_links(mirror)
    leases = [index.hold(mirror, chain(number, 5)) for number in range(1_000_000, 1_000_150)]
    for lease in leases:
        assert lease is not None
        index.release(mirror, lease, 1e6, answer_bytes=1_000)
        assert index.size_bytes <= 1_000 * ENTRY_BYTES


def test_the_budget_holds_when_another_table_names_the_blocks_too() -> None:
    mirror = Mirror()
    index = full_of_links(mirror)
    before = len(mirror)
    index.list_elsewhere(ENTRY_BYTES)
    assert index.size_bytes <= 1_000 * ENTRY_BYTES
    assert len(mirror) > before / 2 - EVICTION_BATCH


def test_the_stalest_mirror_gives_way() -> None:
    stale, fresh = Mirror(), Mirror()
    index = index_of(stale, fresh)
    index.learn(stale, chain(1, 10), 1.0)
    index.learn(fresh, chain(2, 10), 2.0)
    fits = blocks_that_fit(index_of(filled := Mirror()), filled)
    index.learn(fresh, chain(3, fits - 15), 3.0)
    assert (stale.match(chain(1, 10).hashes), fresh.match(chain(3, fits - 15).hashes)) == (0, fits - 15)


def test_what_is_held_is_never_forgotten_and_what_does_not_fit_is_not_held() -> None:
    mirror = Mirror()
    index = index_of(mirror)
    held = chain(1, 700)
    lease = index.hold(mirror, held)
    assert lease is not None
    assert index.hold(mirror, chain(2, 700)) is None
    assert mirror.match(held.hashes) == 700
    index.release(mirror, lease, 1.0)
    assert index.hold(mirror, chain(2, 700)) is not None, "it was idle and gave way"


def test_a_removed_mirror_does_not_count() -> None:
    staying, leaving = Mirror(), Mirror()
    index = index_of(staying, leaving)
    index.learn(staying, chain(1, 5), 1.0)
    lease = index.hold(leaving, chain(2, 50))
    assert lease is not None
    index.remove(leaving)
    assert index.size_bytes == 5 * ENTRY_BYTES
    index.release(leaving, lease, 2.0)
    index.learn(leaving, chain(3, 50), 3.0)
    index.clear(leaving)
    index.evict_unused_since(leaving, 10_000)
    index.remove(leaving)
    assert index.size_bytes == 5 * ENTRY_BYTES
    assert leaving.held_bytes == 0


def test_a_mirror_that_is_added_counts_once_and_with_what_it_holds() -> None:
    mirror = Mirror()
    index = index_of()
    index.learn(mirror, chain(1, 5), 1.0)
    assert index.size_bytes == 0
    index.add(mirror)
    index.add(mirror)
    assert index.size_bytes == 5 * ENTRY_BYTES
    index.clear(mirror)
    assert index.size_bytes == 0


def test_what_is_learnt_is_resident_and_idle() -> None:
    mirror = Mirror()
    index = index_of(mirror)
    learnt = prompt(("user", "a" * 2_000))
    index.learn(mirror, learnt, 5.0)
    assert mirror.match(learnt.hashes) == len(learnt.hashes)
    assert (mirror.held_bytes, mirror.idle_bytes) == (0, learnt.ends_bytes[-1])
    assert mirror.oldest_stamp() == 5_000


def test_what_is_learnt_fits_the_engines_cache() -> None:
    mirror = Mirror()
    index = index_of(mirror)
    mirror.capacity_bytes = 512 * 6
    index.learn(mirror, chain(1, 4), 1.0)
    index.learn(mirror, chain(2, 4), 2.0)
    assert (mirror.match(chain(1, 4).hashes), mirror.match(chain(2, 4).hashes)) == (2, 4)
    assert index.size_bytes == 6 * ENTRY_BYTES


def test_evicting_what_was_not_used_since_is_counted() -> None:
    mirror = Mirror()
    index = index_of(mirror)
    index.learn(mirror, chain(1, 4), 1.0)
    index.learn(mirror, chain(2, 3), 2.0)
    index.evict_unused_since(mirror, 1_000)
    assert index.size_bytes == 3 * ENTRY_BYTES
