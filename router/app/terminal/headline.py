"""The first lines of a frame: who is watched, how much came from cache, what that saved."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from router.app.terminal.figures import WINDOWS, Spread, counts_of
from router.app.terminal.numbers import clock, count, percent, plain, seconds, tokens
from router.app.terminal.view import View, Watched

LABEL_COLUMNS = 12
"""Width of the words at the left."""
BAR_COLUMNS = 24
GOOD_RATIO, FAIR_RATIO = 0.7, 0.4
"""Chats of several turns reach the upper one; turns that are scattered at random stay below the lower one."""


def title(view: View, width: int) -> Text:
    """Return who is watched, and the time of the frame."""
    overviews = view.overviews
    said = [_joined(overview.version for overview in overviews), _joined(overview.policy for overview in overviews)]
    if len(view.routers) > 1:
        said.append(f"{len(view.routers)} routers")
    else:
        said += [view.routers[0].label, *(f"up {seconds(overview.uptime_s)}" for overview in overviews)]
    return _ends(Text.assemble(("warmroute ", "bold"), "  ".join(said)), clock(view.now_s), width)


def losses(routers: Iterable[Watched]) -> list[Text]:
    """Return a line for each router that does not answer."""
    lines = []
    for router in routers:
        if router.lost_since_s is not None:
            kept = "these are its last figures" if router.overview else "it has not answered yet"
            said = f"{router.label}: no answer since {clock(router.lost_since_s)} ({router.why}); {kept}"
            lines.append(_cut(Text(said, "bold red")))
    return lines


def windows_line(view: View, width: int) -> Text:
    """Return the windows to choose from, and how much happened in the chosen one."""
    text, totals = Text(), view.totals
    for name in WINDOWS:
        chosen = name == view.window
        text.append(f"[{name}]" if chosen else f" {name} ", "bold reverse" if chosen else "dim")
    text.append(f"  {count(totals.requests, 'request')}, ")
    text.append(f"{totals.failed:,} failed", "bold red" if totals.failed else "")
    return _ends(text, f"{tokens(totals.prompt_tokens)} prompt tokens", width)


def cache_line(view: View) -> Text:
    """Return the share of prompt tokens that came from cache."""
    totals = view.totals
    text = _label("from cache")
    known = totals.known_ratio
    if known is None:
        text.append("no engine says  " if totals.requests else "nothing yet  ", "dim")
    else:
        who = "counted" if totals.hit_ratio is None else "reported"
        text.append(f"{percent(known)} {who}  ", f"bold {_colour(known)}")
    shown = totals.predicted_ratio if known is None else known
    text.append_text(bar(shown or 0.0, _colour(shown or 0.0)))
    return _cut(text.append(f"  {percent(totals.predicted_ratio)} predicted"))


def saved_line(view: View) -> Text:
    """Return what the hits saved."""
    text = _label("saved").append(seconds(view.totals.saved_prefill_s), "bold").append(" of prefill")
    if len(view.routers) == 1:
        for window in view.windows:
            if window.saved_ttft_s is not None:
                text.append(f", {seconds(window.saved_ttft_s)} for each warm turn")
    return _cut(text)


def ttft_line(view: View) -> Text:
    """Return how long users of one router waited for the first token."""
    text = _label("TTFT")
    for window in view.windows:
        if not window.ttft.warm.count + window.ttft.cold.count:
            return text.append("no answer was streamed", "dim")
        text.append("warm ").append_text(_quantiles(window.ttft.warm))
        text.append("   cold ").append_text(_quantiles(window.ttft.cold))
    return _cut(text)


def _quantiles(spread: Spread) -> Text:
    """Return the median and the 95th percentile of a time, and of how many."""
    if not spread.count:
        return Text("none", "dim")
    text = Text.assemble("p50 ", (seconds(spread.p50_s), "bold"), " p95 ", (seconds(spread.p95_s), "bold"))
    return text.append(f" of {spread.count:,}", "dim")


def reasons_lines(view: View) -> list[Text]:
    """Return how many decisions were made for which reason, and if there are any, which errors the routers gave."""
    reasons = counts_of(window.reasons for window in view.windows)
    errors = counts_of(window.errors for window in view.windows)
    lines = [_label("decisions").append(_counts(reasons) or "none yet")]
    lines += [_label("errors").append(_counts(errors), "bold red")] if errors else []
    return [_cut(line) for line in lines]


def around_line(view: View) -> Text:
    """Return what waits in one router, how Redis is to it, which routers it hears, and what it costs itself."""
    text = _label("queue")
    for overview in view.overviews:
        waiting = ", ".join(f"{number:,} {plain(name)}" for name, number in overview.queue.requests.items())
        text.append(waiting or "empty", "yellow" if any(overview.queue.requests.values()) else "")
        if overview.redis is not None:
            text.append("  Redis ", "dim").append(plain(overview.redis.state), _redis_style(overview.redis.state))
            text.append("  routers ", "dim").append(str(len(overview.routers)))
    for window in view.windows:
        if "overhead" in window.phases:
            text.append("  overhead ", "dim").append(f"p95 {seconds(window.phases['overhead'].p95_s)}")
    return _cut(text)


def bar(ratio: float, style: str) -> Text:
    """Return a share of 1 as a bar with the rest of it drawn thin."""
    filled = round(min(max(ratio, 0.0), 1.0) * BAR_COLUMNS)
    return Text.assemble(("█" * filled, style), ("░" * (BAR_COLUMNS - filled), "dim"))


def _redis_style(state: str) -> str:
    return "green" if state == "up" else "bold red"


def _counts(counts: list[tuple[str, int]]) -> str:
    return "  ".join(f"{plain(name)} {number:,}" for name, number in counts)


def _joined(words: Iterable[str]) -> str:
    return "/".join(dict.fromkeys(plain(word) for word in words))


def _colour(ratio: float) -> str:
    return "green" if ratio >= GOOD_RATIO else "yellow" if ratio >= FAIR_RATIO else "red"


def _label(word: str) -> Text:
    return Text().append(f"{word:<{LABEL_COLUMNS}}", "dim")


def _cut(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _ends(left: Text, right: str, width: int) -> Text:
    """Return a line with something at its right end, if there is room for both."""
    gap = width - left.cell_len - len(right)
    return _cut(left.append(" " * gap).append(right, "dim") if gap >= 2 else left)
