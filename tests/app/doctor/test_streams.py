"""When a stream counts as gathered, and when nothing can be told."""

from __future__ import annotations

import pytest

from router.app.doctor.findings import Level
from router.app.doctor.streams import judge


@pytest.mark.parametrize(
    ("direct_s", "through_s", "expected"),
    [
        (0.6, 0.6, Level.OK),
        (0.6, 0.13, Level.OK),
        (0.6, 0.1, Level.WARNING),
        (0.6, 0.0, Level.WARNING),
        (0.2, 0.0, Level.NOTE),
        (None, 0.6, Level.NOTE),
        (0.6, None, Level.NOTE),
    ],
)
def test_durations(direct_s: float | None, through_s: float | None, expected: Level) -> None:
    assert judge(direct_s, through_s).level is expected
