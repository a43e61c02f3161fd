"""`warmroute health`: from an address, or from the settings, to an exit code."""

from __future__ import annotations

import sys

from router.app.health.asking import UnwellError, ask
from router.app.health.finding import own_url

WELL, UNWELL = 0, 1


def run_health(url: str | None, config: str | None = None) -> int:
    """Ask `url`, or else the router of this place; return 0 if it is well, else 1 after a line on stderr."""
    try:
        if url is None:
            ask(own_url(config), certificate_is_ours=True)
        else:
            ask(url)
    except UnwellError as error:
        print("warmroute:", error, file=sys.stderr)
        return UNWELL
    return WELL
