"""Where the program begins. One command does without the command line's own modules, which take 0.3 s of CPU."""

import os
import signal
import sys
from typing import NoReturn

TERMINATED = 128 + signal.SIGTERM
"""What a shell reports for a process that the signal ended."""

STANDARD_OUTPUT, STANDARD_ERROR = 1, 2


def main() -> NoReturn:
    """Run what the arguments say, and exit."""
    _open_standard_files()
    if os.getpid() == 1:
        # The kernel spares the first process of a container each signal that it has no handler for, and the router
        # takes a second to the point where it has its own: a stop in between would end in SIGKILL.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(TERMINATED))
    match sys.argv[1:]:
        case ["health"]:
            _health(None)
        case ["health", url] if not url.startswith("-"):
            _health(url)
        case _:
            from router.app.cli import main as run

            run()


def _open_standard_files() -> None:
    """Open what a daemon is started without: else a connection gets such a number, and what is logged goes there."""
    number = os.open(os.devnull, os.O_RDWR)
    while number <= STANDARD_ERROR:
        number = os.dup(number)
    os.close(number)
    if sys.stdout is None:
        sys.stdout = os.fdopen(STANDARD_OUTPUT, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(STANDARD_ERROR, "w", closefd=False)


def _health(url: str | None) -> NoReturn:
    from router.app.health.command import run_health

    sys.exit(run_health(url))
