"""Replicas of unequal speed: as quick as an equal fleet that does as much in all. Figures: docs/how-to/scale.md."""

from __future__ import annotations

from router.replay.plan import Plan, Result
from router.replay.report.figures import figures_of, uncached_tokens
from router.replay.run import Run, run
from router.replay.sized_chats import SizedChats
from router.replay.warmroute import Warmroute
from router.sim.types import EngineConfig


def chats(*speeds: float, routers: int = 1, sync_ms: float = 0.0) -> tuple[Plan, SizedChats]:
    engine = EngineConfig(kv_tokens=300_000)
    order = Plan("affinity", engine, 8, speeds, 6.0, 2.0, routers=routers, sync_ms=sync_ms)
    return order, SizedChats(3.0, 360.0)


def tail_s(result: Result) -> float:
    return figures_of(result).ttft_p95_s


def test_the_tail_is_that_of_an_equal_fleet() -> None:
    equal, unequal = run(*chats(2.0)), run(*chats(1.0, 3.0))
    assert len(unequal.answered) > 2_000
    assert tail_s(unequal) <= 1.2 * tail_s(equal)


def test_speeds_are_learnt_and_work_goes_to_the_fast() -> None:
    done = Run(*chats(1.0, 3.0))
    result = done.run()
    router = done.contender
    assert isinstance(router, Warmroute)
    rates = [replica.prefill.tokens_per_s for replica in router.fleet]
    for slow, fast in zip(rates[::2], rates[1::2], strict=True):
        assert fast > 2 * slow
    tokens = uncached_tokens(result.answered, 8)
    assert sum(tokens[1::2]) > 3 * sum(tokens[::2])
    assert min(tokens) > 0


def test_several_routers_learn_them_as_well() -> None:
    one, four = run(*chats(1.0, 3.0)), run(*chats(1.0, 3.0, routers=4, sync_ms=100.0))
    assert tail_s(four) <= 1.3 * tail_s(one)
