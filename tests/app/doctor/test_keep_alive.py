"""What a keep-alive means for the router."""

from __future__ import annotations

import pytest

from router.app.doctor.findings import Level, Remarks
from router.app.doctor.keep_alive import ROUTER_S, judge
from router.app.settings.model import Settings


@pytest.mark.parametrize(
    ("kept_s", "expected"),
    [(None, Level.OK), (5.0, Level.OK), (4.99, Level.OK), (4.0, Level.WARNING), (1.0, Level.WARNING)],
)
def test_what_was_measured(kept_s: float | None, expected: Level) -> None:
    assert judge(Remarks("r-1"), kept_s).level is expected


def test_the_router_can_not_be_told_to_keep_connections_for_longer() -> None:
    with pytest.raises(ValueError, match="upstream_keepalive_s"):
        Settings(upstream_keepalive_s=ROUTER_S)
    Settings(upstream_keepalive_s=ROUTER_S - 0.1)
