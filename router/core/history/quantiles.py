"""Histograms of times, and what can be read from them.

Four buckets an octave, from 31 microseconds to 34 minutes: a bucket's ends differ by 19 per cent, so a quantile is
wrong by less than that; since it is interpolated, mostly by a few per cent.
"""

from __future__ import annotations

from collections.abc import Mapping

PER_OCTAVE = 4
ENDS_S: tuple[float, ...] = tuple(2.0 ** (step / PER_OCTAVE) for step in range(-15 * PER_OCTAVE, 11 * PER_OCTAVE + 1))
"""Greatest time of each bucket but the last: a time's bucket is its `bisect_left` here. Quantiles in the first bucket
are 0. The last one has no end: its quantiles are its beginning."""

BUCKETS = len(ENDS_S) + 1


def quantiles_s(counts: Mapping[int, int], *ratios: float) -> list[float | None]:
    """Return quantiles (ratios ascending, 0 to 1) of the counts by bucket; None where nothing was counted."""
    total = sum(counts.values())
    if not total:
        return [None] * len(ratios)
    found: list[float | None] = []
    below, buckets = 0, iter(sorted(counts.items()))
    bucket, count = next(buckets)
    for ratio in ratios:
        rank = ratio * total
        while below + count < rank:
            below += count
            bucket, count = next(buckets)
        found.append(_between(bucket, (rank - below) / count if count else 0.0))
    return found


def _between(bucket: int, ratio: float) -> float:
    """Return the time at this ratio of a bucket, its logarithm taken as evenly spread."""
    if bucket == 0:
        return 0.0
    octaves = 0.0 if bucket == BUCKETS - 1 else ratio / PER_OCTAVE
    return ENDS_S[bucket - 1] * float(2.0**octaves)
