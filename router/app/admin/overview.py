"""The whole picture at a glance, as the dashboard and `warmroute top` show it."""

from __future__ import annotations

import time
from typing import Any

from router import __version__
from router.adapters.history.showing import Counts, error_ratio, tally, window
from router.app.admin.describe import describe, describe_queue, describe_sharing
from router.app.house import House
from router.core.history import layout
from router.core.history.series import Name
from router.core.replica import Replica

Windows = dict[str, Counts]
"""The counts of the three windows."""


def overview(house: House) -> dict[str, Any]:
    """Show totals, models, replicas, the queue, other routers and Redis, as they are now."""
    history = house.history
    history.roll()
    windows: Windows = {name: history.rolling.totals(name) for name in history.rolling.windows}
    now_s = history.now()
    return {
        "now_s": round(now_s, 3),
        "version": __version__,
        "policy": house.settings.policy,
        "uptime_s": round(now_s - history.started_s, 3),
        "windows": {name: window(counts, history.series) for name, counts in windows.items()},
        "models": {
            model: _tallies(windows, first) for model, first in sorted(history.series.kind(layout.MODEL).items())
        },
        "replicas": _replicas(house, windows),
        "queue": describe_queue(house.plane.admission.queue),
        "recording": house.recording.describe(),
        "touching": None if house.toucher is None else house.toucher.describe(),
        **describe_sharing(house),
    }


def _tallies(windows: Windows, first: int | None) -> dict[str, Any]:
    return {name: tally(counts, first) for name, counts in windows.items()}


def _replicas(house: House, windows: Windows) -> list[dict[str, Any]]:
    members = house.roster.members()
    now = time.monotonic()
    rows = []
    for replica in house.fleet:
        first = house.history.series.find(Name(layout.REPLICA, replica.replica_id))
        row = describe(house, replica, members.get(replica.replica_id))
        row["mirror"] |= _mirror(replica, windows, first)
        row["windows"] = _tallies(windows, first)
        row["eviction_age_s"] = _rounded(replica.mirror.eviction_age_s(now))
        rows.append(row)
    return rows


def _mirror(replica: Replica, windows: Windows, first: int | None) -> dict[str, Any]:
    return {
        "fill_ratio": _rounded(replica.mirror.fill_ratio),
        "error_ratio": error_ratio(windows["1h"], first),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
