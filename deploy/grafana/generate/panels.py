"""The pieces of a dashboard, in Grafana's JSON model. Positions and ids are given when a dashboard is put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}

GREEN, YELLOW, RED, BLUE = "green", "yellow", "red", "blue"

Steps = Sequence[tuple[float | None, str]]
"""From which value on which colour; the first one has no value."""

PLAIN: Steps = ((None, BLUE),)


@dataclass(frozen=True)
class Query:
    """What Prometheus is asked, and what its series are called. `instant`: at the end of the time range only."""

    expr: str
    legend: str = ""
    instant: bool = False
    buckets: bool = False
    """The series are a histogram's cumulative buckets, to be shown one by one."""

    def target(self, place: int) -> Json:
        """Return it as a panel wants it; `place` in the panel, from 0."""
        return {
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "format": "heatmap" if self.buckets else "time_series",
            "instant": self.instant,
            "range": not self.instant,
            "legendFormat": self.legend or "__auto",
            "refId": chr(ord("A") + place),
        }


def _panel(kind: str, title: str, text: str, queries: Sequence[Query], defaults: Json, options: Json) -> Json:
    return {
        "type": kind,
        "title": title,
        "description": text,
        "datasource": DATASOURCE,
        "targets": [query.target(place) for place, query in enumerate(queries)],
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
    }


def _thresholds(steps: Steps) -> Json:
    return {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in steps]}


def _field(unit: str, steps: Steps) -> Json:
    return {"unit": unit, "thresholds": _thresholds(steps), "color": {"mode": "thresholds"}, "mappings": []}


def stat(title: str, text: str, queries: Sequence[Query], unit: str, steps: Steps = PLAIN) -> Json:
    """Show numbers, one a query, coloured by thresholds."""
    options = {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "value_and_name" if len(queries) > 1 else "value",
    }
    asked = [Query(query.expr, query.legend, instant=True) for query in queries]
    return _panel("stat", title, text, asked, _field(unit, steps), options)


def lines(
    title: str,
    text: str,
    queries: Sequence[Query],
    unit: str,
    *,
    stacked: bool = False,
    top: float | None = None,
    steps: Steps | None = None,
) -> Json:
    """Show values over time. `top`: the end of the axis where it is known; `steps` are drawn as lines."""
    defaults: Json = {
        "unit": unit,
        "min": 0,
        "color": {"mode": "palette-classic"},
        "mappings": [],
        "thresholds": _thresholds(steps or PLAIN),
        "custom": {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 25 if stacked else 5,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "dashed" if steps else "off"},
        },
    }
    if top is not None:
        defaults["max"] = top
    options = {
        "legend": {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": ["mean", "lastNotNull"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return _panel("timeseries", title, text, queries, defaults, options)


def bars(title: str, text: str, query: Query, unit: str) -> Json:
    """Show one bar a series: a ranking, or the buckets of a histogram."""
    options = {
        "displayMode": "basic",
        "orientation": "horizontal",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "showUnfilled": True,
        "valueMode": "text",
    }
    asked = Query(query.expr, query.legend, instant=True, buckets=query.buckets)
    return _panel("bargauge", title, text, [asked], _field(unit, PLAIN) | {"min": 0}, options)


def states(title: str, text: str, queries: Sequence[Query], colours: Sequence[tuple[int, str, str]]) -> Json:
    """Show which of a few states each series was in. `colours`: value, its name, its colour."""
    mappings = {
        str(value): {"text": name, "color": colour, "index": place}
        for place, (value, name, colour) in enumerate(colours)
    }
    defaults: Json = {
        "mappings": [{"type": "value", "options": mappings}],
        "color": {"mode": "thresholds"},
        "thresholds": _thresholds(PLAIN),
        "custom": {"fillOpacity": 70, "lineWidth": 0},
    }
    options = {
        "mergeValues": True,
        "rowHeight": 0.85,
        "showValue": "auto",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    return _panel("state-timeline", title, text, queries, defaults, options)
