"""What other routers' policies are documented to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from router.core.types import EngineReport
from router.replay.demand import Job, OpenLoop
from router.replay.rivals.hashing import BOUNDED_LOAD, BoundedPrefixHash, SessionRing
from router.replay.rivals.index import PrefixIndex
from router.replay.rivals.names import RIVALS
from router.replay.rivals.plain import LeastRequests, RoundRobin
from router.replay.rivals.rival import Load, Pick, Picker, Rival
from router.replay.rivals.sticky import Sticky
from router.replay.rivals.tree import GATEWAY, LAUNCHER, TreeSwitch
from router.replay.rivals.weighted import Weighted, Weights
from router.replay.rivals.work import WorkProduct, WorkSum
from router.replay.run import Run, run
from tests.replay.worlds import BLOCK_TOKENS, asked, plan, trace


def job(blocks: Sequence[int], session: str = "") -> Job:
    found = OpenLoop("", [asked(0.0, blocks, session=session)]).clients(1)[0].next_job()
    assert found is not None
    return found


def busy(*requests: int) -> list[Load]:
    return [
        Load(requests=count, pending=count, pending_tokens=100 * count, context_tokens=100 * count)
        for count in requests
    ]


def index(replicas: int = 3) -> PrefixIndex:
    return PrefixIndex(replicas, BLOCK_TOKENS, 10_000)


def picks(picker: Picker, jobs: Sequence[Job], loads: Sequence[Load]) -> list[int]:
    return [picker.pick(one, loads, 0.0).replica for one in jobs]


def test_round_robin() -> None:
    assert picks(RoundRobin(), [job([1])] * 5, busy(9, 0, 0)) == [0, 1, 2, 0, 1]


def test_fewest_requests_and_then_the_least_recently_chosen() -> None:
    assert picks(LeastRequests(3), [job([1])] * 4, busy(2, 1, 1)) == [1, 2, 1, 2]


def test_a_session_has_one_replica_whatever_the_load() -> None:
    ring, names = SessionRing(4, BLOCK_TOKENS), [f"s{n}" for n in range(40)]
    alone = picks(ring, [job([n], name) for n, name in enumerate(names)], busy(0, 0, 0, 0))
    later = picks(ring, [job([n + 100, 7], name) for n, name in enumerate(names)], busy(90, 0, 3, 50))
    assert alone == later
    assert set(alone) == {0, 1, 2, 3}


def test_one_more_replica_moves_a_fifth_of_the_sessions() -> None:
    sessions = [job([1], f"s{n}") for n in range(400)]
    four, five = (picks(SessionRing(n, BLOCK_TOKENS), sessions, busy(*[0] * n)) for n in (4, 5))
    moved = [after for before, after in zip(four, five, strict=True) if before != after]
    assert 0.1 < len(moved) / 400 < 0.3
    assert set(moved) == {4}


def test_without_a_session_the_beginning_of_the_prompt_decides() -> None:
    ring = SessionRing(4, BLOCK_TOKENS)
    same = list(range(1_000, 1_103))  # 1,024 tokens and more
    assert len(set(picks(ring, [job([*same, n]) for n in range(20)], busy(0, 0, 0, 0)))) == 1
    assert len(set(picks(ring, [job([n]) for n in range(40)], busy(0, 0, 0, 0)))) == 4


def test_no_replica_is_above_the_bound_when_it_is_chosen() -> None:
    chance, loads, picker = Random(1), busy(0, 0, 0, 0), BoundedPrefixHash(4, BLOCK_TOKENS)
    for _ in range(400):
        total = sum(load.requests for load in loads)
        chosen = picker.pick(job([chance.choice([1, 1, 1, 2])]), loads, 0.0).replica
        assert loads[chosen].requests <= BOUNDED_LOAD * (total + 1) / 4
        loads[chosen].requests += 1
        if chance.random() < 0.5:
            load = max(loads, key=lambda load: load.requests)
            load.requests -= 1
    assert all(load.requests for load in loads)


def test_a_hot_beginning_spills_to_the_same_neighbour() -> None:
    picker = BoundedPrefixHash(4, BLOCK_TOKENS)
    home = picker.pick(job([1]), busy(0, 0, 0, 0), 0.0).replica
    loads = busy(0, 0, 0, 0)
    loads[home].requests = 10
    assert len(spilled := set(picks(picker, [job([1])] * 5, loads))) == 1
    assert spilled != {home}


def test_the_tree_follows_the_longest_match() -> None:
    tree = TreeSwitch(3, BLOCK_TOKENS)
    first = tree.pick(job(range(20)), busy(0, 0, 0), 0.0)
    loads = busy(0, 0, 0)
    loads[first.replica].requests = 60
    assert tree.pick(job(range(24)), loads, 0.0) == Pick(first.replica, 200)


@pytest.mark.parametrize(("shared", "follows"), [(5, False), (8, True)])
def test_a_match_below_the_threshold_does_not_count(shared: int, follows: bool) -> None:
    tree = TreeSwitch(3, BLOCK_TOKENS)
    home = tree.pick(job(range(shared)), busy(0, 0, 0), 0.0).replica
    loads = busy(0, 0, 0)
    loads[home].requests = 5
    prompt = job([*range(shared), *range(900, 920 - shared)])
    assert (tree.pick(prompt, loads, 0.0).replica == home) is follows


@pytest.mark.parametrize(
    ("requests", "gateway", "launcher"),
    [((65, 0, 9), True, True), ((64, 0, 9), False, True), ((200, 140, 150), False, True), ((32, 0, 9), False, False)],
)
def test_the_whole_fleet_switches_when_it_is_unbalanced(
    requests: tuple[int, ...], gateway: bool, launcher: bool
) -> None:
    for switch, thrown in ((GATEWAY, gateway), (LAUNCHER, launcher)):
        tree = TreeSwitch(3, BLOCK_TOKENS, switch)
        assert tree.pick(job(range(20)), busy(0, 5, 5), 0.0).replica == 0
        assert switch.thrown(busy(*requests)) is thrown
        # Its history is on the first replica; the second one has the fewest requests.
        assert tree.pick(job(range(22)), busy(*requests), 0.0).replica == (1 if thrown else 0)


def test_weights_of_prefix_queue_and_kv() -> None:
    weighted = Weighted(index(2), Weights(2.0, 1.0, 1.0), seed=1)
    loads = busy(0, 3)
    loads[1].report = EngineReport(kv_usage_ratio=1.0)
    assert weighted.pick(job(range(20)), loads, 0.0).replica == 0
    # Warm and 3 to 0 behind: 2 x 200/245 + 0 + 1 against 0 + 1 + 1.
    assert weighted.pick(job(range(24)), busy(3, 0), 0.0).replica == 0
    # The same with the cache of the warm one full: 1.63 against 2.
    loads = busy(3, 0)
    loads[0].report = EngineReport(kv_usage_ratio=1.0)
    assert weighted.pick(job(range(24)), loads, 0.0).replica == 1
    heavier = Weighted(index(2), Weights(4.0, 1.0, 1.0), seed=1)
    heavier.pick(job(range(20)), busy(0, 3), 0.0)
    assert heavier.pick(job(range(24)), loads, 0.0).replica == 0


def test_sticky_leaves_at_two_seconds() -> None:
    sticky = Sticky(2, index(2), prefill_tokens_per_s=100.0)
    home = sticky.pick(job(range(20)), busy(0, 5), 0.0).replica
    assert home == 0
    assert sticky.pick(job(range(21)), busy(2, 0), 0.0) == Pick(0, 200)
    assert sticky.pick(job(range(21)), busy(3, 0), 0.0) == Pick(1, 0)


def warm_first(picker: Picker, loads: Sequence[Load]) -> int:
    """Return who gets a prompt of 255 tokens, 200 of which the first replica was sent before."""
    assert picker.pick(job(range(20)), busy(0, 5), 0.0).replica == 0
    return picker.pick(job(range(25)), loads, 0.0).replica


def test_the_sum_and_the_product_of_work() -> None:
    # Warm with 2 x 100 tokens to prefill, or cold and idle: 200 + 55 + 200 against 255; 255 x 3 against 255 x 1.
    assert warm_first(WorkSum(2, index(2)), busy(2, 0)) == 1
    assert warm_first(WorkProduct(2, index(2)), busy(2, 0)) == 1
    # Nothing left to prefill, but 4 requests that decode 100 tokens each: 55 + 400 against 255; 55 x 5 against 255 x 1.
    decoding = [Load(requests=4, context_tokens=400), Load()]
    assert warm_first(WorkSum(2, index(2)), decoding) == 1
    assert warm_first(WorkProduct(2, index(2)), decoding) == 1
    # 3 that decode 50 tokens each: 55 + 150 against 255; 55 x 4 against 255 x 1.
    decoding = [Load(requests=3, context_tokens=150), Load()]
    assert warm_first(WorkSum(2, index(2)), decoding) == 0
    assert warm_first(WorkProduct(2, index(2)), decoding) == 0
    # 2 that decode 150 tokens each: 55 + 300 against 255; 55 x 3 against 255 x 1.
    decoding = [Load(requests=2, context_tokens=300), Load()]
    assert warm_first(WorkSum(2, index(2)), decoding) == 1
    assert warm_first(WorkProduct(2, index(2)), decoding) == 0


def test_the_index_knows_no_answers_and_never_the_last_token() -> None:
    known = index(2)
    known.sent(job(range(5)), 1)
    assert known.matched_tokens(job(range(9))) == [0, 50]
    whole = OpenLoop("", [asked(0.0, range(5), more=0)]).clients(1)[0].next_job()
    assert whole is not None
    assert known.matched_tokens(whole) == [0, 40]


def test_the_index_forgets_what_an_engine_has_no_room_for() -> None:
    small = PrefixIndex(1, BLOCK_TOKENS, 100)
    small.sent(job(range(8)), 0)
    small.sent(job(range(50, 55)), 0)
    assert small.matched_tokens(job(range(8))) == [50]


@pytest.mark.parametrize("policy", RIVALS)
def test_every_rival_reaches_every_replica_and_no_other(policy: str) -> None:
    chance = Random(5)
    requests = [
        asked(0.4 * n, [session := chance.randrange(60) * 1_000, session + 1, session + 2], session=f"s{session}")
        for n in range(300)
    ]
    result = run(plan(policy, replicas=5), trace(*requests))
    assert set(Counter(one.replica for one in result.answered)) == set(range(5))
    assert len(result.answered) == 300
    assert all(one.queued_s == 0.0 for one in result.answered)


@pytest.mark.parametrize("policy", RIVALS)
def test_a_rivals_counts_are_zero_at_the_end(policy: str) -> None:
    done = Run(plan(policy), trace(*(asked(0.1 * n, range(n % 5 * 10, n % 5 * 10 + 4)) for n in range(50))))
    done.run()
    assert isinstance(done.contender, Rival)
    assert [(one.requests, one.pending, one.pending_tokens, one.context_tokens) for one in done.contender.loads] == [
        (0, 0, 0, 0)
    ] * 2
