"""What goes wrong in the router itself is answered and logged; it is not taken for the client's mistake."""

from __future__ import annotations

import logging
from collections import UserDict

import pytest

from tests.rig.client import chat
from tests.rig.stage import Stage


class Aliases(UserDict[str, str]):
    """Names that can't be looked up."""

    def __contains__(self, key: object) -> bool:
        raise RuntimeError("the aliases are broken")


async def test_a_mistake_is_500_and_its_traceback_is_logged(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    kept = router.house.plane.aliases
    router.house.plane.aliases = Aliases()  # type: ignore[assignment]
    client, other = await stage.client(router), await stage.client(router)
    answer = await client.ask(chat("of a private matter"))
    assert (answer.status, answer.error["code"]) == (500, "internal_error")
    await client.closed()
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.getMessage() == "a request could not be handled"
    assert "the aliases are broken" in caplog.text
    assert "private" not in caplog.text
    router.house.plane.aliases = kept
    assert (await other.ask(chat())).status == 200
    await router.idle()
    assert router.house.plane.bodies.held_bytes == 0
