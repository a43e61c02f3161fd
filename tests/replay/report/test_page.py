"""The page: the table's numbers, plots with every policy, nothing from elsewhere, nothing left open."""

from dataclasses import replace

from router.replay.report.figures import curves_of, figures_of
from router.replay.report.page import Page, Section, html
from router.replay.report.plots import run_plots, sweep_plots
from router.replay.report.rows import headings, rows
from router.replay.report.style import LINE_COLOURS
from router.replay.sweep import Sweep
from tests.replay.report.page_reader import PageReader
from tests.replay.report.results import result

COLOURS = ":root { --ink: #000; }"
RESULTS = [result("affinity"), result("rr", slower=10)]
FIGURES = [figures_of(one) for one in RESULTS]


def page(**more) -> Page:
    sections = [Section("2 replicas <small>", rows(FIGURES))]
    plots = run_plots([curves_of(one) for one in RESULTS])
    return Page("Replay of a & b", ["affinity", "rr"], sections, plots, **more)


def test_a_pages_numbers_are_the_tables():
    seen = PageReader(html(page(answers=["enough"]), COLOURS))
    assert seen.open == []
    assert seen.captions == ["2 replicas <small>"]
    assert seen.tables == [[["policy", *headings()], *([row.policy, *row.cells] for row in rows(FIGURES))]]
    assert seen.answers == ["enough"]


def test_a_page_needs_nothing_else():
    text = html(page(asked={"seed": "1"}), COLOURS)
    assert PageReader(text).loads == []
    assert "<script" not in text
    assert "http" not in text
    assert "url(" not in text
    assert COLOURS in text


def test_names_are_text():
    text = html(page(), COLOURS)
    assert "<title>Replay of a &amp; b</title>" in text
    assert "<small>" not in text


def test_the_plots_of_a_run():
    seen = PageReader(html(page(), COLOURS))
    assert [label.partition(":")[0] for label in seen.plots] == [
        "Time to first token", "Hit rate over time", "TTFT p95 over time", "Uncached tokens by replica",
    ]  # fmt: skip
    assert len(seen.lines) == 2 * 4
    # 120 tokens on the busiest, 80 on the other, of an axis from 0 to 150.
    assert seen.lines[-1] == "M56.0 60.8L544.0 125.9"


def test_the_plots_of_a_sweep():
    sweep = Sweep("kv-tokens", (1_000, 2_000, 3_000))
    first = [
        replace(FIGURES[0], kv_tokens=size, hit_ratio=hits, ttft_p95_s=wait)
        for size, hits, wait in ((1_000, 0.1, 9.0), (2_000, 0.5, 1.9), (3_000, 0.6, 1.8))
    ]
    other = [replace(one, policy="rr", hit_ratio=0.1, ttft_p95_s=20.0) for one in first]
    plots = sweep_plots(sweep, {"affinity": first, "rr": other}, target_s=2.0)
    seen = PageReader(html(Page("t", ["affinity", "rr"], [], plots), COLOURS))
    assert [label.partition(":")[0] for label in seen.plots] == ["Hit rate", "TTFT p95"]
    assert seen.marks == ["knee", "2 s", "enough"]
    (hits, waits) = plots
    assert [mark.at for mark in hits.lines[0].marks] == [(2_000.0, 50.0)]
    assert [mark.at for mark in waits.lines[0].marks] == [(2_000.0, 1.9)]
    assert not waits.x.log


def test_a_sweep_over_a_wide_range_is_logarithmic():
    points = [replace(FIGURES[0], replicas=value) for value in (1, 16)]
    plots = sweep_plots(Sweep("replicas", (1, 16)), {"affinity": points}, target_s=2.0)
    assert [plot.x.log for plot in plots] == [True, True]


def test_a_run_without_answers_is_drawn():
    empty = replace(RESULTS[0].plan, policy="none")
    nothing = type(RESULTS[0])(empty)
    plots = run_plots([curves_of(nothing)])
    text = html(Page("t", ["none"], [Section("c", rows([figures_of(nothing)]))], plots), COLOURS)
    assert PageReader(text).open == []
    assert "nan" not in text


def test_every_policy_has_a_style_of_its_own():
    text = html(page(), COLOURS)
    assert all(f".line-{style} {{ --c: var(--reason-" in text for style in range(24))
    assert len(set(LINE_COLOURS)) == len(LINE_COLOURS)
