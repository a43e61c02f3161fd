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


async def test_the_window_that_a_router_starts_with(stage: Stage, viewer: Viewer) -> None:
    await opened(stage, viewer)
    code = "return given.map(its.windowThatHolds);"
    assert await run(viewer, "windows.js", code, [0.5, 300, 301, 3_600, 90_000]) == ["5m", "5m", "1h", "1h", "1h"]


async def test_who_has_chosen_a_window_keeps_it(stage: Stage, viewer: Viewer) -> None:
    await opened(stage, viewer)
    code = """
        const form = document.createElement('form');
        for (const value of ['5m', '1h', '24h']) {
            form.append(Object.assign(document.createElement('input'), { type: 'radio', name: 'w', value }));
        }
        const chosen = [];
        sessionStorage.clear();
        const windows = its.createWindows(form, (window) => chosen.push(window));
        document.body.append(form); // a click elsewhere changes nothing
        if (given) form.children[2].click();
        windows.suit(20);
        windows.suit(4000);
        its.createWindows(form, (window) => chosen.push(`again ${window}`)).suit(20);
        form.remove();
        return chosen;
    """
    assert await run(viewer, "windows.js", code, False) == ["5m", "again 5m"]
    assert await run(viewer, "windows.js", code, True) == ["24h", "again 24h"]


async def test_numbers_of_things_agree(stage: Stage, viewer: Viewer) -> None:
    await opened(stage, viewer)
    assert await run(viewer, "format.js", "return [0, 1, 2].map((n) => its.plural(n, 'turn'));") == [
        "0 turns",
        "1 turn",
        "2 turns",
    ]
    assert await run(viewer, "format.js", "return [its.unit(1, ' turn'), its.unit(2, ' turn')];") == [" turn", " turns"]


async def test_nothing_evicted_yet_is_not_said_where_something_was(stage: Stage, viewer: Viewer) -> None:
    await opened(stage, viewer)
    code = "return its.ageSentence(given);"
    said = {
        evicted: await run(viewer, "charts/returns.js", code, {"ages": [], "evicted": evicted})
        for evicted in (False, True)
    }
    assert said == {
        False: "No replica has to evict anything yet.",
        True: "No replica has to evict anything now.",
    }
    trend = "return its.hasEvicted(...given);"
    nothing, some = {"too_late": [0, 0]}, {"too_late": [0, 1]}
    evicted = {"cause": "evicted", "turns": 1}
    assert not await run(viewer, "views/trends.js", trend, [nothing, [{"cause": "spilled", "turns": 3}]])
    assert await run(viewer, "views/trends.js", trend, [some, []])
    assert await run(viewer, "views/trends.js", trend, [nothing, [evicted]])
