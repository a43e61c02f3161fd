"""How the page looks: its frame, its tables, the lines of its plots."""

LINE_COLOURS = (
    "warm",
    "shared",
    "drained",
    "failover",
    "spilled",
    "keyless",
    "pinned",
    "session",
    "last-resort",
    "new",
)
"""Of the dashboard's colours those that stand off from the page in light and dark, the best told apart first. From
the seventh policy on lines are dashed, too."""
DASHED_FROM = 6

STYLE = """
*, *::before, *::after { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem; max-width: 84rem; background: var(--ground); color: var(--ink);
  font: 14px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  font-variant-numeric: tabular-nums; }
h1 { font-size: 1.35rem; margin: 0 0 0.3rem; letter-spacing: -0.01em; }
h2 { font-size: 1rem; margin: 0 0 0.2rem; }
p { margin: 0 0 0.8rem; } .quiet, figcaption p { color: var(--quiet); } .answer { font-size: 1.1rem; }
.panel { background: var(--surface); border: 1px solid var(--rule); border-radius: 8px; padding: 1rem 1.2rem;
  margin: 0 0 1rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: 1rem; }
.plots .panel { margin: 0; } .wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; } caption { text-align: left; font-weight: 600; padding: 0 0 0.4rem; }
th, td { padding: 0.3rem 0.5rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--rule); }
th { font-weight: 600; color: var(--quiet); } thead th { white-space: normal; vertical-align: bottom; }
table + table { margin-top: 1.2rem; } tbody th { color: var(--ink); }
tr > :first-child { text-align: left; padding-left: 0; }
.legend { display: flex; flex-wrap: wrap; gap: 0.3rem 1.2rem; padding: 0; margin: 0 0 1rem; list-style: none; }
.legend svg { width: 1.8rem; height: 0.7rem; vertical-align: middle; margin-right: 0.4rem; }
svg { display: block; width: 100%; height: auto; } .legend svg { display: inline-block; }
.grid { stroke: var(--rule); } .axis { stroke: var(--quiet); } .level { stroke: var(--ink); stroke-dasharray: 3 3; }
.grid, .axis, .level, .line { fill: none; }
.line { stroke: var(--c); stroke-width: 2; stroke-linejoin: round; } .dot { fill: var(--c); stroke: var(--surface); }
.tick, .label, .mark { font-size: 11px; fill: var(--quiet); } .mark { fill: var(--ink); font-weight: 600; }
figure { margin: 0; } dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 1rem; margin: 0; }
dt { color: var(--quiet); } dd { margin: 0; }
@media (max-width: 40rem) { body { padding: 0.8rem; } dl { grid-template-columns: 1fr; } dd { margin-bottom: 0.4rem; } }
"""


def style_sheet() -> str:
    """The page's own style sheet, over the colours of the dashboard."""
    colours = "".join(
        f".line-{style} {{ --c: var(--reason-{LINE_COLOURS[style % len(LINE_COLOURS)]}); }}" for style in range(24)
    )
    dashes = ",".join(f".line-{style} .line" for style in range(DASHED_FROM, 24))
    return f"{STYLE}{colours}{dashes} {{ stroke-dasharray: 6 3; }}"
