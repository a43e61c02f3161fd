"""Each rung by replay, over the five people, with a GPU that holds one of them: 65 blocks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from router.replay.advice.arithmetic import GIB
from router.replay.advice.choice import Tried
from router.replay.advice.ladder import Kind, Rung, Sizes, ladder
from router.replay.advice.measured import Measured, measure
from router.replay.plan import Plan
from router.replay.report.figures import Figures, figures_of
from router.replay.run import run
from tests.replay.advice.worlds import CEILING_RATIO, ENGINE, HELD_TOKENS, PEOPLE, PEOPLE_TALK, ROOMY

SMALL = replace(ROOMY, engine=replace(ENGINE, kv_tokens=660))
ALL_TOKENS = 610 * PEOPLE
"""All full blocks of all people."""

QUICK = Sizes(kv_token_bytes=GIB, host_bytes_per_s=1e6 * GIB, store_bytes_per_s=1e6 * GIB)
"""A token is a GiB, so that sizes are told in tokens; loading takes no time."""


@pytest.fixture(scope="module")
def found() -> Measured:
    return measure(SMALL, PEOPLE_TALK)[1]


def rungs_of(kind: Kind, measured: Measured, sizes: Sizes, plan: Plan = SMALL) -> list[Rung]:
    return [rung for rung in ladder(plan, measured, sizes) if rung.kind is kind]


def figures(rung: Rung) -> Figures:
    return figures_of(run(rung.plan, PEOPLE_TALK))


def test_as_it_is_nobody_finds_anything(found: Measured) -> None:
    (free,) = rungs_of(Kind.FREE, found, QUICK)
    assert free.plan == SMALL
    assert figures(free).hit_ratio == found.hit_ratio == 0.0
    assert found.ceiling_ratio == pytest.approx(CEILING_RATIO)


def test_where_all_sessions_fit_into_host_memory_hits_reach_the_ceiling(found: Measured) -> None:
    enough, short = (replace(QUICK, host_gib=(tokens,)) for tokens in (ALL_TOKENS, ALL_TOKENS // 2))
    (offload,) = rungs_of(Kind.OFFLOAD, found, enough)
    assert offload.costs == f"host memory: 1 x {ALL_TOKENS:,} GiB"
    assert figures(offload).hit_ratio == pytest.approx(CEILING_RATIO)
    (offload,) = rungs_of(Kind.OFFLOAD, found, short)
    assert figures(offload).hit_ratio < CEILING_RATIO


def test_at_break_even_loading_takes_as_long_as_computing(found: Measured) -> None:
    sizes = replace(QUICK, host_gib=(ALL_TOKENS,))
    (free,) = rungs_of(Kind.FREE, found, sizes)
    at, above, below = (
        figures(rungs_of(Kind.OFFLOAD, found, replace(sizes, host_bytes_per_s=speed * GIB))[0]).ttft_p95_s
        for speed in (100.0, 200.0, 50.0)
    )
    assert at == pytest.approx(figures(free).ttft_p95_s)
    assert above < at < below


def test_one_store_serves_all_replicas(found: Measured) -> None:
    two = replace(SMALL, replicas=2, policy="rr")
    (free,) = rungs_of(Kind.FREE, found, QUICK, two)
    (store,) = rungs_of(Kind.STORE, found, replace(QUICK, store_gib=(ALL_TOKENS,)), two)
    (offload,) = rungs_of(Kind.OFFLOAD, found, replace(QUICK, host_gib=(ALL_TOKENS,)), two)
    assert figures(store).hit_ratio == pytest.approx(CEILING_RATIO)
    assert figures(free).hit_ratio <= figures(offload).hit_ratio < CEILING_RATIO


def test_pinned_sessions_keep_their_blocks_and_the_others_have_less(found: Measured) -> None:
    """With room for three and pins on half of it: one person's history always stays."""
    three = replace(SMALL, engine=replace(ENGINE, kv_tokens=1_500))
    measured = measure(three, PEOPLE_TALK)[1]
    (pin,) = rungs_of(Kind.PIN, measured, QUICK, three)
    assert pin.plan.pins is not None
    assert pin.plan.pins.hold_s == measured.think_p90_s
    assert figures(pin).hit_ratio > measured.hit_ratio


def test_pinning_is_not_tried_where_nobody_comes_back(found: Measured) -> None:
    assert rungs_of(Kind.PIN, replace(found, think_p90_s=float("nan")), QUICK) == []


def test_shorter_histories(found: Measured) -> None:
    """Limit 240: 24 blocks, in steps of 12. Of 20 and 40 blocks of history 6 stay; 12 and 24 go."""
    (cut,) = rungs_of(Kind.SHORTEN, found, replace(QUICK, history_tokens=(240,)))
    result = run(cut.plan, PEOPLE_TALK)
    assert sorted({one.prompt_tokens for one in result.answered}) == [200, 280, 360]
    assert figures_of(result).ttft_p95_s == pytest.approx(3.6)


def test_more_replicas(found: Measured) -> None:
    assert [rung.size for rung in rungs_of(Kind.REPLICAS, found, QUICK)] == [2, 3]
    assert [rung.size for rung in rungs_of(Kind.REPLICAS, found, QUICK, replace(SMALL, replicas=8))] == [9, 10, 16]
    assert figures_of(run(replace(SMALL, replicas=PEOPLE), PEOPLE_TALK)).hit_ratio == pytest.approx(CEILING_RATIO), (
        "a replica each"
    )


def test_what_is_tried_by_itself(found: Measured) -> None:
    """300,000 tokens of 128 KiB are 36.6 GiB: 64 is the first size that holds more."""
    plan = Plan("affinity", replace(ENGINE, kv_tokens=300_000), replicas=8)
    sizes = Sizes(131_072, 20e9, 5e9)
    measured = replace(found, prompt_p95_tokens=45_000.0)
    assert [rung.size for rung in rungs_of(Kind.OFFLOAD, measured, sizes, plan)] == [64, 128, 256]
    assert [rung.size for rung in rungs_of(Kind.STORE, measured, sizes, plan)] == [1_024]
    assert [rung.size for rung in rungs_of(Kind.SHORTEN, measured, sizes, plan)] == [22_000, 11_000]
    offload = rungs_of(Kind.OFFLOAD, measured, sizes, plan)[0].plan.offload
    assert offload is not None
    assert (offload.tokens, offload.load_tokens_per_s, offload.shared) == (524_288, 20e9 / 131_072, False)


def test_the_memory_to_pin_all_is_told() -> None:
    measured = measure(ROOMY, PEOPLE_TALK)[1]
    (pin,) = rungs_of(Kind.PIN, measured, QUICK, ROOMY)
    assert pin.costs.endswith(f"all present sessions: {PEOPLE * HELD_TOKENS:,}.0 GiB")
    assert Tried(pin, figures(pin)).sound
