"""Several routers in a replay: what each knows when, with times told in the head."""

from __future__ import annotations

from random import Random

import pytest

from router.replay.chats import Chats
from router.replay.contender import Call, Refuse, Send
from router.replay.contenders import names
from router.replay.demand import Job, OpenLoop
from router.replay.plan import Plan, Result
from router.replay.run import Run, run
from router.replay.several import Several
from router.replay.sized_chats import SizedChats
from router.replay.warmroute import NAMES as WARMROUTE
from router.sim.types import EngineConfig
from tests.replay.worlds import ENGINE, asked, plan, trace

TWO = {"routers": 2, "sync_ms": 500.0}


def came_to(count: int, routers: int = 2, seed: int = 1) -> list[int]:
    """Return which router each of the first calls comes to."""
    chance = Random(seed)
    return [chance.randrange(routers) for _ in range(count)]


def seed_where(*routers: int) -> int:
    """Return a seed with which the first calls come to these of two routers."""
    return next(seed for seed in range(1, 1_000) if came_to(len(routers), seed=seed) == list(routers))


def places(result: Result) -> list[int]:
    return [one.replica for one in sorted(result.answered, key=lambda one: one.arrived_s)]


def test_what_another_router_has_sent_is_seen_late() -> None:
    """A long prompt is 9.95 s of work, which the next new session goes out of the way of, if its router knows."""
    busy = [asked(0.0, range(99)), asked(0.125, range(200, 210))]
    late = [asked(0.0, range(99)), asked(0.75, range(200, 210))]
    first = places(run(plan("affinity-unheld", **TWO, seed=seed_where(0, 0)), trace(*busy)))
    assert first[0] != first[1]
    unseen = places(run(plan("affinity-unheld", **TWO, seed=seed_where(0, 1)), trace(*busy)))
    assert unseen[0] == unseen[1]
    seen = places(run(plan("affinity-unheld", **TWO, seed=seed_where(0, 1)), trace(*late)))
    assert seen[0] != seen[1]


def test_a_sessions_next_turn_is_warm_at_any_router_once_the_others_know() -> None:
    turns = [asked(0.0, range(9)), asked(3.0, range(14))]
    for routers in ((0, 0), (0, 1), (1, 0)):
        answered = run(plan("affinity", **TWO, seed=seed_where(*routers)), trace(*turns)).answered
        assert [one.reason for one in answered] == ["new", "warm"]
        assert answered[1].cached_tokens == answered[1].predicted_tokens == 90


def test_before_that_only_the_router_that_sent_the_first_one_knows_its_prefix() -> None:
    fleet = Several(plan("affinity-unheld", **TWO)).fleet
    first, second = job(asked(0.0, range(9))).request, job(asked(0.25, [*range(8), 50, 51])).request

    def known_at(router: int, now: float) -> list[int]:
        with fleet.acts(router, now):
            return sorted(score.matched_blocks for score in fleet.explain(second, now).scores)

    with fleet.acts(1, 0.0):
        fleet.route(first, 0.0)
    assert (known_at(1, 0.25), known_at(0, 0.25)) == ([0, 8], [0, 0])
    assert (known_at(1, 0.5), known_at(0, 0.5)) == ([0, 8], [0, 8])


def test_work_that_is_done_is_no_load_for_who_did_it() -> None:
    """The prefill ends at 0.95 s: its own router knows at once that nothing is ahead any more, the other half a
    second later."""
    fleet = Several(plan("affinity-unheld", replicas=1, **TWO, seed=seed_where(0))).fleet
    replica = fleet["r0"]
    request = job(asked(0.0, range(9))).request
    with fleet.acts(0, 0.0):
        ticket = fleet.route(request, 0.0)
        assert replica.load == (0, 0, 0)
        assert replica.peer_load == (ticket.entry.work.uncached, 1, 1)
    with fleet.acts(1, 0.25):
        assert replica.peer_load == replica.load == (0, 0, 0)
    with fleet.acts(1, 0.5):
        assert replica.load == (ticket.entry.work.uncached, 1, 1)
    with fleet.acts(0, 0.95):
        fleet.first_byte(ticket, 0.95)
        assert replica.queue_s(0.95) == pytest.approx(0.0)
    with fleet.acts(1, 1.0):
        assert replica.queue_s(1.0) > 0.0
    with fleet.acts(1, 1.45):
        assert replica.queue_s(1.45) == 0.0
        assert replica.streams == 1


def job(recorded: object) -> Job:
    client = OpenLoop("one", [recorded]).clients(1)[0]  # type: ignore[list-item]
    found = client.next_job()
    assert found is not None
    return found


def test_routers_that_know_at_once_decide_as_one() -> None:
    requests = trace(*(asked(0.4 * n, range(n % 9 * 100, n % 9 * 100 + n % 13)) for n in range(80)))
    one, four = (run(plan("affinity", replicas=3, routers=count), requests) for count in (1, 4))
    assert [(a.replica, a.cached_tokens, a.reason) for a in one.answered] == [
        (a.replica, a.cached_tokens, a.reason) for a in four.answered
    ]


def test_old_news_costs_little() -> None:
    engine = EngineConfig(kv_tokens=300_000)
    hits = []
    for routers, sync_ms in ((1, 0.0), (8, 100.0)):
        order = Plan("affinity", engine, minutes=4, warm_up_minutes=2, routers=routers, sync_ms=sync_ms)
        answered = run(order, SizedChats(3.0, 240.0)).answered
        hits.append(sum(one.cached_tokens for one in answered) / sum(one.prompt_tokens for one in answered))
    assert hits[1] > 0.97 * hits[0]


@pytest.mark.parametrize("policy", ["affinity", "affinity-unheld", "session-hash"])
def test_nothing_is_left_at_the_end(policy: str) -> None:
    requests = [asked(0.05 * n, range(n % 7 * 100, n % 7 * 100 + n % 11)) for n in range(60)]
    done = Run(plan(policy, replicas=3, routers=5, sync_ms=300.0), trace(*requests))
    result = done.run()
    assert len(result.answered) == 60
    assert result.extra["decisions"] >= 60
    contender = done.contender
    assert isinstance(contender, Several)
    contender.fleet.catch_up(1e9)
    assert [replica.load for replica in contender.fleet] == [(0, 0, 0)] * 3
    assert [replica.peer_load for replica in contender.fleet] == [(0, 0, 0)] * 3
    assert [replica.mirror.held_bytes for replica in contender.fleet] == [0, 0, 0]


def test_what_waits_in_one_router_is_sent_by_it() -> None:
    fast = EngineConfig(kv_tokens=100_000, block_tokens=10, prefill_tokens_per_s=8_000.0, prefill_slowdown_per_seq=0.0)
    requests = [asked(0.0, range(1_599)), asked(0.25, range(10_000, 11_599)), asked(0.3, range(20_000, 21_599))]
    result = run(plan("affinity", engine=fast, replicas=1, routers=2, sync_ms=100.0), trace(*requests))
    assert len(result.answered) == 3
    assert result.extra["longest_queue"] >= 1
    assert max(one.queued_s for one in result.answered) > 1.0


def test_who_would_wait_for_too_long_is_refused() -> None:
    fast = EngineConfig(kv_tokens=100_000, block_tokens=10, prefill_tokens_per_s=8_000.0, prefill_slowdown_per_seq=0.0)
    order = plan("affinity", engine=fast, replicas=1, max_queue_wait_s=0.5, **TWO, seed=seed_where(0, 0))
    contender = Several(order)
    calls = [Call(number, job(asked(0.0, range(10_000 * number, 10_000 * number + 1_599)))) for number in range(2)]
    assert isinstance(contender.arrived(calls[0], 0.0), Send)
    assert isinstance(contender.arrived(calls[1], 0.0), Refuse)


def test_the_same_plan_gives_the_same_result() -> None:
    order = Plan("affinity", ENGINE, replicas=3, minutes=1, routers=4, sync_ms=200.0)
    requests = trace(*(asked(0.2 * n, range(n % 9 * 100, n % 9 * 100 + n % 13)) for n in range(80)))
    assert run(order, requests).answered == run(order, requests).answered


def test_chats_by_their_sizes_are_the_chats() -> None:
    written, sized = Chats(2.0, 60.0, 64).clients(5), SizedChats(2.0, 60.0).clients(5)
    assert [one.starts_s for one in written] == [one.starts_s for one in sized]
    for text, numbers in zip(written[:20], sized[:20], strict=True):
        while (one := text.next_job()) is not None:
            other = numbers.next_job()
            assert other is not None
            assert (one.prompt_tokens, one.think_s) == (other.prompt_tokens, other.think_s)
            assert len(one.simulated.output_token_ids) == len(other.simulated.output_token_ids)
            assert one.simulated.block_hashes is not None
            assert other.simulated.block_hashes is not None
            assert len(one.simulated.block_hashes) == len(other.simulated.block_hashes)
        assert numbers.next_job() is None


@pytest.mark.parametrize("policy", [name for name in names() if name not in WARMROUTE])
def test_only_warmroutes_routers_share(policy: str) -> None:
    with pytest.raises(ValueError, match=f"{policy} is replayed as one router, not as 2"):
        run(plan(policy, **TWO), trace(asked(0.0, [1])))


def test_news_from_the_future_and_touches_cannot_be_replayed() -> None:
    with pytest.raises(ValueError, match="0 ms old or older, not -1"):
        run(plan("affinity", routers=2, sync_ms=-1.0), trace(asked(0.0, [1])))
    with pytest.raises(ValueError, match="touched by one router only"):
        run(plan("affinity", routers=2, touch=True), trace(asked(0.0, [1])))
