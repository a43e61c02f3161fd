"""The stage of tests that run the router.

At its end it is looked at what must hold after any test: nothing is counted in flight, and no callback raised.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
import uvloop
from hypothesis import HealthCheck, settings

from tests.rig.stage import Stage

# How long anything takes is no property of the code: machines are busy, and the first draw of text makes a table that
# takes seconds where nothing is cached.
#
# `fast` is what every run takes; `make fuzz` asks for `deep`.
settings.register_profile("fast", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("deep", settings.get_profile("fast"), max_examples=20_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, Callable[[], Any]]:
    """Async tests run on the loop that `warmroute serve` runs on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def stage(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Stage]:
    raised: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
    async with contextlib.AsyncExitStack() as stack:
        stage = Stage(stack)
        yield stage
        await stage.clear()
    assert not raised, raised
    failed = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert not failed, failed
