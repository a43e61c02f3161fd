"""The page that is made a little at a time has what Prometheus' own client would write at once, and holds up nobody."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.process_collector import ProcessCollector

from router.adapters.metrics.page import FAMILY_SAMPLES, SLICE_SAMPLES, text_of
from router.core.types import OutcomeKind
from tests.adapters.metrics.shown import Shown
from tests.adapters.records import decision, record


def busy() -> Shown:
    """Histograms of more samples than a slice has, with names that want escaping."""
    shown = Shown()
    for number in range(20):
        shown.fleet.add(f"r-{number}")
        odd = f'quote" back\\slash new\nline é {number % 3}'
        shown.collector.request_finished(record(model=odd, decision=decision(f"r-{number}", 16 * (number % 2))))
        shown.collector.attempt_failed(f"r-{number}", OutcomeKind.RESET)
    return shown


async def test_it_is_what_the_client_library_writes() -> None:
    shown = busy()
    text = await text_of(shown.registry)
    assert text.count(b"\nwarmroute_ttft_seconds_bucket") > 2 * SLICE_SAMPLES
    assert text == generate_latest(shown.registry)


async def test_other_collectors_are_on_it() -> None:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    assert b"\n# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total " in await text_of(registry)


async def test_nothing_is_on_an_empty_page() -> None:
    assert await text_of(CollectorRegistry()) == b""


async def test_others_have_their_turn_after_each_slice() -> None:
    shown = busy()
    reading = asyncio.ensure_future(text_of(shown.registry))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    lines = [line for line in (await reading).splitlines() if not line.startswith(b"#")]
    assert turns > len(lines) / SLICE_SAMPLES


async def test_small_families_go_together() -> None:
    shown = Shown()
    shown.fleet.add("r-0")
    reading = asyncio.ensure_future(text_of(shown.registry))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    text = await reading
    families, lines = text.count(b"# TYPE"), len(text.splitlines())
    assert families > 30
    assert turns <= 2 + (lines + families * FAMILY_SAMPLES) / SLICE_SAMPLES


async def test_a_replica_may_leave_while_it_is_made() -> None:
    shown = busy()
    reading = asyncio.ensure_future(text_of(shown.registry))
    gone = 0
    while not reading.done():
        await asyncio.sleep(0)
        for number in range(gone, min(gone + 2, 20)):  # more than it takes turns, and some of them in between
            shown.fleet.remove(f"r-{number}")
            shown.collector.forget(f"r-{number}")
        gone = min(gone + 2, 20)
    assert gone >= 10
    assert b"warmroute_build_info" in await reading
