"""The gauges of replicas and engines, and what is absent while it is not known."""

from __future__ import annotations

from router import __version__
from router.core.types import EngineReport, Outcome, OutcomeKind, Prompt, RoutingRequest, Usage
from tests.adapters.metrics.shown import Shown


def serve(shown: Shown, first_block: int, now: float) -> None:
    """Let r-1 answer a prompt of 400 bytes."""
    prompt = Prompt([first_block, first_block + 1], [200, 400], [], None)
    ticket = shown.fleet.route_to("r-1", RoutingRequest("m", "chat", prompt, 400), now)
    shown.fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200, Usage(100, 0, 0, "stop")), now)


def test_unknown_engine_figures_are_absent_and_known_zeros_are_there() -> None:
    shown = Shown()
    assert shown.value("warmroute_engine_running_requests", replica="r-1") is None
    shown.fleet.observe_engine("r-1", EngineReport(running=0))
    assert shown.value("warmroute_engine_running_requests", replica="r-1") == 0
    assert shown.value("warmroute_engine_waiting_requests", replica="r-1") is None
    shown.fleet.lost_sight_of("r-1")
    assert shown.value("warmroute_engine_running_requests", replica="r-1") is None


def test_a_mirror_is_full_of_what_it_holds_once_the_caches_size_is_known() -> None:
    shown = Shown()
    serve(shown, 1, now=10.0)
    assert shown.value("warmroute_mirror_blocks", replica="r-1") == 2
    assert shown.value("warmroute_mirror_fill_ratio", replica="r-1") is None
    shown.fleet["r-1"].mirror.capacity_bytes = 1_600
    assert shown.value("warmroute_mirror_fill_ratio", replica="r-1") == 0.25


def test_what_is_evicted_next_has_an_age_while_something_must_be_evicted() -> None:
    shown = Shown()
    serve(shown, 1, now=10.0)
    shown.fleet["r-1"].mirror.capacity_bytes = 800
    assert shown.value("warmroute_eviction_age_seconds", replica="r-1") is None
    serve(shown, 11, now=40.0)
    shown.fleet["r-1"].mirror.capacity_bytes = 800
    assert shown.value("warmroute_eviction_age_seconds", replica="r-1") == 90.0


def test_the_build_says_its_version() -> None:
    assert Shown().values("warmroute_build_info", "version") == {__version__: 1}
