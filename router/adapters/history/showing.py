"""The counts of a window as the admin API shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from router.core.history import layout
from router.core.history.quantiles import quantiles_s
from router.core.history.series import FIELDS, Name, Series

Counts = Mapping[int, int]
"""Of one window, by key."""

Fields = Mapping[int, int]
"""The numbers of one series that are not 0, by field."""

Fleetwide = dict[Name, Fields]
"""All series that are not of one model or replica."""

NOTHING: Fields = {}


def fleetwide_firsts(series: Series) -> dict[int, Name]:
    """Return the series that are not of one model or replica, by their first keys."""
    return {first: name for name, first in series if name.kind not in (layout.MODEL, layout.REPLICA)}


def fleetwide(counts: Iterable[tuple[int, int]], firsts: Mapping[int, Name]) -> Fleetwide:
    """Sort counts by series. `firsts` as from `fleetwide_firsts`."""
    found: dict[Name, dict[int, int]] = {name: {} for name in firsts.values()}
    for key, value in counts:
        field = key % FIELDS
        name = firsts.get(key - field)
        if name is not None:
            found[name][field] = value
    return dict(found)


def tally(counts: Counts, first: int | None) -> dict[str, Any]:
    """Show requests and tokens of the fleet, a model or a replica, by its first key. None: it has none."""
    row = [0] * layout.TALLY_FIELDS
    if first is not None:
        row = [counts.get(first + field, 0) for field in range(layout.TALLY_FIELDS)]
    prompt, reported = row[layout.PROMPT_TOKENS], row[layout.REPORTED_TOKENS]
    predicted, cached = row[layout.PREDICTED_TOKENS], row[layout.CACHED_TOKENS]
    queries, hits = row[layout.COUNTER_QUERIES], row[layout.COUNTER_HITS]
    return {
        "requests": row[layout.REQUESTS],
        "failed": row[layout.FAILED],
        "prompt_tokens": prompt,
        "predicted_cached_tokens": predicted,
        "reported_prompt_tokens": reported,
        "engine_cached_tokens": cached,
        "hit_ratio": ratio(cached, reported),
        "counter_queries_tokens": queries,
        "counter_hits_tokens": hits,
        "counter_ratio": ratio(hits, queries),
        "predicted_ratio": ratio(predicted, prompt),
        "lost_tokens": row[layout.LOST_TOKENS],
        "saved_prefill_s": row[layout.SAVED_US] / 1e6,
    }


def ratio(part: float, whole: float) -> float | None:
    """Return a share; None of nothing."""
    return round(part / whole, 4) if whole else None


def error_ratio(counts: Counts, first: int | None) -> float | None:
    """Return by how much predictions were wrong / prompt tokens, where the engine said so; None where it did not."""
    if first is None:
        return None
    return ratio(counts.get(first + layout.ERROR_TOKENS, 0), counts.get(first + layout.REPORTED_TOKENS, 0))


def window(counts: Counts, series: Series) -> dict[str, Any]:
    """Show all of a window but its models and replicas."""
    shown = fleetwide(counts.items(), fleetwide_firsts(series))
    fleet = shown.get(layout.FLEET, NOTHING)
    return {
        **tally(fleet, 0),
        "causes": _causes(shown),
        "reasons": numbers(shown, layout.REASON),
        "errors": numbers(shown, layout.ERROR),
        **_ttft(shown),
        "phases": {phase: quantiles(shown.get(Name(layout.PHASE, phase), NOTHING)) for phase in layout.PHASES},
        "returns": {
            "bounds_s": list(layout.RETURN_BOUNDS_S),
            "in_time": _returns(shown, layout.IN_TIME),
            "too_late": _returns(shown, layout.TOO_LATE),
        },
        "saved_ttft_s": _saved_s(fleet),
    }


def _causes(shown: Fleetwide) -> list[dict[str, Any]]:
    """Show what was missed and why, the costliest first."""
    rows = [
        {
            "cause": name.of,
            "turns": fields[layout.TURNS],
            "tokens": fields.get(layout.TOKENS, 0),
            "prefill_s": fields.get(layout.PREFILL_US, 0) / 1e6,
        }
        for name, fields in shown.items()
        if name.kind == layout.CAUSE and layout.TURNS in fields
    ]
    return sorted(rows, key=lambda row: (-row["tokens"], -row["turns"], row["cause"]))


def _ttft(shown: Fleetwide) -> dict[str, Any]:
    warm, cold = by_length(shown, layout.WARM), by_length(shown, layout.COLD)
    return {
        "ttft": {"warm": quantiles(merged(warm)), "cold": quantiles(merged(cold))},
        "ttft_by_length": [
            {"up_to_tokens": tokens, "warm": quantiles(of_warm), "cold": quantiles(of_cold)}
            for tokens, of_warm, of_cold in zip((*layout.LENGTHS_TOKENS, None), warm, cold, strict=True)
        ],
    }


def by_length(shown: Fleetwide, kind: str) -> list[Fields]:
    """Return the histograms of the times to the first byte, one for each length of prompt."""
    return [shown.get(Name(kind, length), NOTHING) for length in layout.LENGTHS]


def merged(histograms: Iterable[Fields]) -> Fields:
    """Return the sum of histograms."""
    sums: dict[int, int] = {}
    for one in histograms:
        for bucket, count in one.items():
            sums[bucket] = sums.get(bucket, 0) + count
    return sums


def numbers(shown: Fleetwide, kind: str, field: int = 0) -> dict[str, int]:
    """Return one field of each series of a kind, where it is not 0."""
    return {name.of: fields[field] for name, fields in shown.items() if name.kind == kind and field in fields}


def quantiles(histogram: Fields) -> dict[str, Any]:
    """Show how many there were, the median and the 95th percentile."""
    median_s, p95_s = quantiles_s(histogram, 0.5, 0.95)
    return {"count": sum(histogram.values()), "p50_s": rounded(median_s), "p95_s": rounded(p95_s)}


def rounded(seconds: float | None) -> float | None:
    """Return a time to the microsecond."""
    return None if seconds is None else round(seconds, 6)


def _returns(shown: Fleetwide, kind: str) -> list[int]:
    fields = shown.get(Name(kind), NOTHING)
    return [fields.get(field, 0) for field in range(len(layout.RETURN_BOUNDS_S) + 1)]


def _saved_s(fleet: Fields) -> float | None:
    """Return the prefill seconds saved by a request that hit, on average; None where none did."""
    turns = fleet.get(layout.WARM_TURNS, 0)
    return rounded(fleet.get(layout.SAVED_US, 0) / 1e6 / turns) if turns else None
