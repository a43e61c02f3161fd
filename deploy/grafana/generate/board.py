"""Puts rows of panels together into a dashboard, with the variables that all of ours have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deploy.grafana.generate.panels import DATASOURCE, Json

SCHEMA_VERSION = 41
"""Of Grafana 12. Later ones read it and bring it up to date themselves."""

WIDTH = 24
"""Grafana's grid."""

TAG = "warmroute"


@dataclass(frozen=True)
class Row:
    """Panels side by side under a heading, in one or more lines that fill the grid; each with its width."""

    title: str
    panels: Sequence[tuple[int, Json]]
    height: int = 8


def board(uid: str, title: str, text: str, rows: Sequence[Row]) -> Json:
    """Return a whole dashboard."""
    return {
        "uid": uid,
        "title": title,
        "description": text,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timepicker": {},
        "annotations": {"list": []},
        "links": [_link_to_the_others()],
        "templating": {"list": _variables()},
        "panels": _placed(rows),
    }


def _placed(rows: Sequence[Row]) -> list[Json]:
    panels: list[Json] = []
    y = 0
    for row in rows:
        x = 0
        panels.append(_heading(row.title, y))
        y += 1
        for width, panel in row.panels:
            if x + width > WIDTH:
                x, y = 0, y + row.height
            panels.append(panel | {"gridPos": {"h": row.height, "w": width, "x": x, "y": y}})
            x += width
        y += row.height
    return [panel | {"id": number} for number, panel in enumerate(panels, 1)]


def _heading(title: str, y: int) -> Json:
    grid = {"h": 1, "w": WIDTH, "x": 0, "y": y}
    return {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": grid}


def _variables() -> list[Json]:
    source = {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "regex": "",
        "current": {},
        "options": [],
        "hide": 0,
        "multi": False,
        "includeAll": False,
    }
    return [
        source,
        _variable("job", "Fleet", "label_values(warmroute_build_info, job)"),
        _variable("router", "Router", 'label_values(warmroute_build_info{job=~"$job"}, instance)'),
        _variable(
            "model", "Model", 'label_values(warmroute_prompt_tokens_total{job=~"$job", instance=~"$router"}, model)'
        ),
        _variable(
            "replica", "Replica", 'label_values(warmroute_replica_up{job=~"$job", instance=~"$router"}, replica)'
        ),
    ]


def _variable(name: str, label: str, query: str) -> Json:
    every: Json = {"text": ["All"], "value": ["$__all"]}
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
        "definition": query,
        "refresh": 2,  # when the time range changes: replicas come and go
        "sort": 1,
        "regex": "",
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": every,
        "options": [],
        "hide": 0,
    }


def _link_to_the_others() -> dict[str, Any]:
    return {
        "title": "Warmroute",
        "type": "dashboards",
        "tags": [TAG],
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "icon": "external link",
        "tooltip": "",
        "url": "",
    }
