"""Session hints: a header wins over the prefix, a name is compared whole, and each way of giving one counts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rig.client import chat, request
from tests.rig.stage import Stage
from tests.rig.talks import fleet_of, text


async def test_a_session_header_wins_over_the_prefix(stage: Stage) -> None:
    router, _ = await fleet_of(stage)
    client = await stage.client(router)
    one = await client.ask(chat(text(1), headers=[("x-session-id", "one")]))
    two = await client.ask(chat(text(2), headers=[("x-session-id", "two")]))
    assert one.replica != two.replica
    crossed = await client.ask(chat(text(1), headers=[("x-session-id", "two")]))
    assert (crossed.replica, crossed.reason) == (two.replica, "session")


async def test_session_1_is_not_session_12(stage: Stage) -> None:
    router, _ = await fleet_of(stage)
    client = await stage.client(router)
    names = ["session-1", "session-12", "session-", "SESSION-1", "session-1 2"]
    homes = {name: (await client.ask(chat(headers=[("x-session-id", name)]))).replica for name in names}
    assert len(set(homes.values())) == 4
    for name in reversed(names):
        answer = await client.ask(chat(headers=[("x-session-id", name)]))
        assert (answer.replica, answer.reason) == (homes[name], "session")


@pytest.mark.parametrize(
    "hint",
    [
        {"headers": [("x-session-id", "s")]},
        {"session_id": "s"},
        {"prompt_cache_key": "s"},
        {"conversation": "s"},
        {"conversation": {"id": "s"}},
    ],
    ids=["header", "session_id", "prompt_cache_key", "conversation", "conversation-object"],
)
async def test_every_kind_of_session_hint_keeps_keyless_requests_at_home(stage: Stage, hint: dict[str, Any]) -> None:
    router, _ = await fleet_of(stage)
    client = await stage.client(router)
    first = await client.ask(chat("a", **hint))
    for number in range(6):
        await client.ask(chat(f"somebody else {number}"))
        answer = await client.ask(chat(f"b{number}", **hint))
        assert (answer.replica, answer.reason) == (first.replica, "session")


async def test_session_headers_are_configurable_and_the_first_present_one_counts(stage: Stage) -> None:
    replicas = await stage.replicas(4)
    router = await stage.router(*replicas, session_header=("x-conversation", "x-user"))
    client = await stage.client(router)
    first = await client.ask(chat(headers=[("x-user", "u"), ("X-Conversation", "c")]))
    for number in range(4):
        other = await client.ask(chat(headers=[("x-session-id", "c"), ("x-other", str(number))]))
        assert other.reason == "keyless"
        answer = await client.ask(chat(headers=[("x-conversation", "c"), ("x-user", f"u{number}")]))
        assert (answer.replica, answer.reason) == (first.replica, "session")


async def test_sessions_reach_requests_that_are_not_read(stage: Stage) -> None:
    router, _ = await fleet_of(stage)
    client = await stage.client(router)
    kind = [("content-type", "multipart/form-data; boundary=x"), ("x-session-id", "s")]
    first = await client.ask(request("/v1/audio/transcriptions", b"--x--", headers=kind))
    for _ in range(4):
        await client.ask(chat())
        answer = await client.ask(request("/v1/audio/transcriptions", b"--x--", headers=kind))
        assert (answer.replica, answer.reason) == (first.replica, "session")
