"""Cancellations that a library loses on their way."""

from __future__ import annotations

import asyncio


def stop_if_cancelled() -> None:
    """Raise CancelledError in a task that was cancelled while it waited for a library.

    redis-py 8.1 swallows most cancellations that come while it waits for an answer: the command returns as if nothing
    had been asked of it. dnspython waits by `asyncio.wait_for`, which before Python 3.12 drops one that comes together
    with its result. A loop that did not look would run for ever.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
