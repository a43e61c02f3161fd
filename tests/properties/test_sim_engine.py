"""What holds in a simulated engine after any mix of arrivals, departures and waiting."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from router.sim.blocks import BlockPool, chain_hashes
from router.sim.engine import Engine, EngineConfig, Event, Finished, SimRequest, Tokens

TINY = EngineConfig(kv_tokens=11 * 4, block_tokens=4, prefill_tokens_per_s=500.0, max_num_seqs=4)
"""10 usable blocks of 4 tokens: every second example preempts."""


@dataclass(frozen=True)
class Step:
    """Wait, then submit or abort."""

    wait_s: float
    prompt: Sequence[int] = ()
    output: int = 0
    abort: int | None = None


@st.composite
def prompts(draw: Any) -> list[int]:
    """Up to 24 tokens that begin like few others do."""
    stem = draw(st.sampled_from([(), (1,) * 8, (1,) * 8 + (2,) * 8, (3,) * 12]))
    return [*stem, *draw(st.lists(st.integers(0, 2), min_size=1, max_size=24 - len(stem)))]


waits_s = st.sampled_from([0.0, 0.001, 0.02, 0.1, 1.0])
submits = st.builds(Step, waits_s, prompts(), st.integers(0, 17))
aborts = st.builds(Step, waits_s, abort=st.integers(0, 15))
plans = st.lists(submits | submits | aborts, max_size=16)
configs = st.builds(
    replace,
    st.just(TINY),
    stream_interval=st.sampled_from([1, 2, 5, 1_000]),
    max_num_seqs=st.sampled_from([1, 2, 4]),
    max_num_queued_reqs=st.sampled_from([None, 0, 3]),
)


def play(engine: Engine, plan: list[Step], look: Any = lambda: None, polls: int = 1) -> tuple[list[Event], dict, set]:
    """Carry out a plan; return all events, the accepted requests by id, and the ids that were aborted in time."""
    events: list[Event] = []
    accepted: dict[str, SimRequest] = {}
    aborted: set[str] = set()
    now = 0.0
    for number, step in enumerate(plan):
        for poll in range(1, polls + 1):
            told = engine.advance(now + step.wait_s * (poll / polls))
            events += told
            look()
        now += step.wait_s
        if step.abort is not None:
            before = engine.stats.aborted
            engine.abort(str(step.abort), now)
            if engine.stats.aborted > before:
                aborted.add(str(step.abort))
        else:
            request = SimRequest(str(number), step.prompt, [7] * step.output)
            if engine.submit(request, now):
                accepted[str(number)] = request
        look()
    while (at_s := engine.next_event_s()) is not None:
        told = engine.advance(at_s)
        assert all(event.at_s <= at_s for event in told)
        events += told
        look()
    return events, accepted, aborted


@given(configs, plans)
@settings(max_examples=300)
def test_blocks_are_conserved(config: EngineConfig, plan: list[Step]):
    engine = Engine(config)

    def look() -> None:
        pool = engine.pool
        free = pool.eviction_order()
        assert len(set(free)) == len(free)
        assert 0 not in free
        assert pool.free_blocks + pool.used_blocks == pool.num_blocks - 1
        for block in range(1, pool.num_blocks):
            assert pool.references(block) >= 0
            assert (pool.references(block) == 0) == (block in free)
        assert engine.running > 0 or pool.used_blocks == 0
        assert engine.running <= config.max_num_seqs
        assert 0.0 <= engine.kv_usage_ratio <= 1.0

    play(engine, plan, look)
    assert engine.pool.used_blocks == 0


@given(configs, plans)
@settings(max_examples=300)
def test_every_request_finishes_with_all_its_tokens_or_was_aborted(config: EngineConfig, plan: list[Step]):
    engine = Engine(config)
    events, accepted, aborted = play(engine, plan)
    assert (engine.running, engine.waiting) == (0, 0)
    ends = [event for event in events if isinstance(event, Finished)]
    assert sorted(end.request_id for end in ends) == sorted(set(accepted) - aborted)
    for end in ends:
        request = accepted[end.request_id]
        told = [event for event in events if isinstance(event, Tokens) and event.request_id == end.request_id]
        assert sum(event.count for event in told) == len(request.output_token_ids) == end.generated_tokens
        assert [event.first for event in told] == [True] + [False] * (len(told) - 1)
        assert end.cached_tokens <= len(request.token_ids) - 1
        assert end.cached_tokens % config.block_tokens == 0
    assert engine.stats.aborted == len(aborted)
    assert sum(engine.stats.finished.values()) == len(ends)


@given(configs, plans)
@settings(max_examples=200)
def test_events_come_in_order_of_time(config: EngineConfig, plan: list[Step]):
    events, _, _ = play(Engine(config), plan)
    times = [event.at_s for event in events]
    assert times == sorted(times)


SHARED = [1] * 8 + [2] * 8 + [0]
SHORT_OF_MEMORY = EngineConfig(
    kv_tokens=44, block_tokens=4, prefill_tokens_per_s=500.0, prefill_slowdown_per_seq=0.015, max_num_seqs=4
)


# A request gives way to another, and fits again at once, by what they share: not only when somebody looks.
@example(SHORT_OF_MEMORY, [Step(0.0, [0], 0), Step(0.0, SHARED, 14), Step(0.0, SHARED, 12), Step(1.0, [0], 0)], 7)
@given(configs, plans, st.integers(2, 7))
@settings(max_examples=200)
def test_the_same_requests_give_the_same_events_however_often_one_looks(
    config: EngineConfig, plan: list[Step], polls: int
):
    assert play(Engine(config), plan) == play(Engine(config), plan, polls=polls)


@given(configs, plans, prompts(), st.lists(st.integers(0, 2), max_size=12))
@settings(max_examples=200)
def test_extending_a_prompt_never_shortens_the_hit(
    config: EngineConfig, plan: list[Step], prompt: list[int], more: list[int]
):
    engine = Engine(config)
    play(engine, plan)

    def hit(token_ids: list[int]) -> list[int]:
        hashes = chain_hashes(token_ids, config.block_tokens)
        return engine.pool.longest_hit(hashes, (len(token_ids) - 1) // config.block_tokens)

    assert hit(prompt + more)[: len(hit(prompt))] == hit(prompt)


@given(st.lists(st.tuples(st.sampled_from(["allocate", "release", "touch"]), st.integers(0, 5)), max_size=60))
def test_the_pool_agrees_with_a_plain_list(operations: list[tuple[str, int]]):
    """The queue, rewritten with nothing but a list: hashed blocks leave by the back door, bare ones by the front."""
    pool, queue, held = BlockPool(9), list(range(1, 9)), []
    for number, (operation, size) in enumerate(operations):
        if operation == "allocate" and size <= len(queue):
            taken, queue = queue[:size], queue[size:]
            assert pool.allocate(size) == taken
            for index, block in enumerate(taken[: size - number % 2]):
                pool.cache(block, 1_000 * number + index)
            held.append((taken, taken[: size - number % 2]))
        elif operation == "touch":
            hit = pool.longest_hit([1_000 * size + index for index in range(size)], size)
            pool.touch(hit)
            queue = [block for block in queue if block not in hit]
            held.append((hit, hit))
        elif operation == "release" and held:
            blocks, hashed = held.pop(size % len(held))
            pool.release(blocks)
            still = {block for others, _ in held for block in others}
            gone = [block for block in reversed(blocks) if block not in still]
            bare = [block for block in gone if block not in hashed]
            queue = bare + queue + [block for block in gone if block in hashed]
        assert pool.eviction_order() == queue
