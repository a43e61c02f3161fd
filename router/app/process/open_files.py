"""How many files this process may open, and how many client connections that is enough for."""

from __future__ import annotations

import contextlib
import logging
import resource

from router.app.settings.model import Settings

LOGGER = logging.getLogger("warmroute.limits")

FILES_OF_A_CLIENT = 2
"""Its connection, and one to a replica while it has a request under way."""

OWN_FILES = 128
"""For all else: probes of some twenty engines, Redis, the admin port's clients, files. Half of a low limit."""


def raise_limit() -> None:
    """Raise the soft limit to the hard one: the usual soft limit of 1,024 is there for programs that use select(2)."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):  # macOS names no hard limit and takes less than that
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def client_connections(settings: Settings) -> int:
    """Return how many client connections are taken: as many as asked for, or as the files suffice for."""
    return min(settings.max_connections, _enough_for(_files()))


def warn_if_few(settings: Settings) -> None:
    """Log a warning if files do not suffice for the connections that are asked for."""
    files = _files()
    if _enough_for(files) < settings.max_connections:
        LOGGER.warning(
            "%s files may be open, which is enough for %s client connections and not for the %s of --max-connections: "
            "raise the limit (ulimit -n, LimitNOFILE=, --ulimit nofile=), or lower --max-connections",
            *(f"{number:,}" for number in (files, _enough_for(files), settings.max_connections)),
        )


def _files() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


def _enough_for(files: int) -> int:
    return max(1, (files - min(OWN_FILES, files // 2)) // FILES_OF_A_CLIENT)
