"""The page's small functions, run in the browser that they are for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.shown import GAP, UNKNOWN, amount, count, percent, seconds
from tests.browser.viewer import Viewer
from tests.rig.stage import Stage

pytestmark = pytest.mark.browser


async def run(viewer: Viewer, module: str, code: str, argument: Any = None) -> Any:
    """Import a module of the page and evaluate code with it."""
    return await viewer.page.evaluate(
        f"async (given) => {{ const its = await import('/page/{module}'); {code} }}", argument
    )


async def opened(stage: Stage, viewer: Viewer) -> None:
    await viewer.open(str((await (await stage.router(await stage.replica())).admin()).base_url))


async def test_numbers(stage: Stage, viewer: Viewer) -> None:
    await opened(stage, viewer)
    cases: dict[str, dict[float, str]] = {
        "amount": {
            0: "0", 999: "999", 999.6: "1.00_k", 12_345: "12.3_k", 99_949: "99.9_k", 999_600: "1.00_M",
            3.2e12: "3200_G",
        },
        "count": {0: "0", 999: "999", 1_000: "1,000", 1_234_567: "1,234,567"},
        "percent": {0: "0.0_%", 0.7244: "72.4_%", 0.9996: "100_%", 1: "100_%"},
        "seconds": {
            0: "0_s", 0.00034: "340_µs", 0.0009996: "1.00_ms", 0.34: "340_ms", 0.9996: "1.00_s", 12.34: "12.3_s",
            99.96: "1_min 40_s", 3599.6: "1_h", 120: "2_min", 4_350: "1_h 13_min", 86_400: "1_d", 100_000: "1_d 4_h",
        },
        "bytes": {12: "12_B", 188_000: "188_kB"},
        "perSecond": {8_120: "8.12_k/s"},
    }  # fmt: skip
    for name, each in cases.items():
        for value, text in each.items():
            shown = await run(viewer, "format.js", f"return its.{name}(given);", value)
            assert shown == text.replace("_", GAP), (name, value)
        assert await run(viewer, "format.js", f"return its.{name}(null);") == UNKNOWN


async def test_the_tests_round_as_the_page_does(stage: Stage, viewer: Viewer) -> None:
    await opened(stage, viewer)
    values = [0, 0.5, 1.5, 2.5, 12.25, 12.35, 99.949, 99.95, 0.00099949, 0.12345, 0.9994, 7.125, 58.3, 119.5, 1234.5]
    for name, here in {"amount": amount, "count": count, "seconds": seconds, "percent": percent}.items():
        there = await run(viewer, "format.js", f"return given.map(its.{name});", values)
        assert there == [here(value) for value in values], name


async def test_events_come_whole_however_they_are_cut(stage: Stage, viewer: Viewer) -> None:
    await opened(stage, viewer)
    stream = ': hello\n\nevent: overview\ndata: {"a": 1}\n\nevent: decision\r\ndata: 1\r\ndata: 2\r\n\r\n'
    stream += "data:x\n\nevent: cut\nda"
    for size in (1, 2, 3, 7, 1_000):
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        code = "const reader = new its.EventReader(); return given.flatMap((piece) => reader.read(piece));"
        assert await run(viewer, "events.js", code, pieces) == [
            {"event": "overview", "data": '{"a": 1}'},
            {"event": "decision", "data": "1\n2"},
            {"event": "message", "data": "x"},
        ], size


async def test_children_stay_the_same_in_a_new_order(stage: Stage, viewer: Viewer) -> None:
    await opened(stage, viewer)
    code = """
        const list = its.h('ul');
        document.body.append(list);
        const draw = (keys) => its.keyed(list, keys, (key) => key, (key) => its.h('li', { tabindex: 0 }), its.setText);
        draw(['a', 'b', 'c']);
        const [a, b, c] = list.children;
        c.focus();
        draw(['c', 'x', 'a', 'c']);
        const same = [list.children[0] === c, list.children[2] === a, b.isConnected, document.activeElement === c];
        return [list.textContent, ...same];
    """
    assert await run(viewer, "dom.js", code) == ["cxa", True, True, False, True]


@pytest.mark.parametrize(
    ("values", "ticks"),
    [([0.02, 3.5], [0.01, 0.1, 1, 10]), ([1, 1], [1, 10]), ([], [0.01, 0.1, 1, 10])],
    ids=["wide", "one value", "nothing"],
)
async def test_a_logarithmic_scale(stage: Stage, viewer: Viewer, values: list[float], ticks: list[float]) -> None:
    await opened(stage, viewer)
    found = await run(viewer, "charts/scale.js", "return its.logarithmic(given, 100, 0).ticks;", values)
    assert found == pytest.approx(ticks)


async def test_a_linear_scale(stage: Stage, viewer: Viewer) -> None:
    await opened(stage, viewer)
    code = "return given.map((largest) => its.linear(largest, 100, 0).ticks);"
    assert await run(viewer, "charts/scale.js", code, [0, 1, 7, 1_234]) == [
        pytest.approx([0, 0.5, 1]),
        pytest.approx([0, 0.5, 1]),
        [0, 2, 4, 6, 8],
        [0, 500, 1_000, 1_500],
    ]
