"""A client changes its history, in every way there is: what the router says was changed, and what that cost.

Each is told alike in the record, by the header that the client asked for, and by the engine's own count.
"""

from __future__ import annotations

from typing import Any

import pytest

from router.core.misses.types import Cause
from tests.rig.client import request
from tests.rig.stage import Stage
from tests.rig.talks import BLOCK_TOKENS, TALKS, fleet_of, text
from tests.rig.turns import Conversation, Seen, whole_blocks

TOOLS = [
    {"type": "function", "function": {"name": f"look_{number}", "description": text(number, 40)}} for number in range(4)
]


async def conversation(stage: Stage, models: tuple[str, ...] = ("sim-model",), **body: Any) -> Conversation:
    router, _ = await fleet_of(stage, models=models)
    return Conversation(router, await stage.client(router), body=body)


def lost(before: Seen, now: Seen, cause: Cause, message: int | None, role: str) -> None:
    """The turn lost what the one before had and the engine did not find, for this cause."""
    turn, header = now.turn, now.header
    history = whole_blocks(min(before.prompt_tokens, now.prompt_tokens - 1))
    assert turn.session == before.turn.session
    assert (turn.number, turn.cause) == (before.turn.number + 1, cause)
    assert (turn.history_tokens, turn.cached_tokens) == (history, now.cached_tokens)
    assert turn.lost_tokens == history - now.cached_tokens > 2 * BLOCK_TOKENS
    assert turn.change is not None
    assert (turn.change.cause, turn.change.message, turn.change.role) == (cause, message, role)
    assert (header["session"], header["turn"]) == (f'"{turn.session}"', str(turn.number))
    assert (header["cause"], header["change"], header["role"]) == (cause, cause, role)
    assert header.get("message") == (None if message is None else str(message))
    predicted = whole_blocks(min(before.prompt_tokens, now.predicted_tokens - 1))
    assert int(header["history"]) == predicted
    assert int(header["lost"]) == predicted - now.answer.matched_tokens


async def calm_again(talk: Conversation) -> None:
    """What goes on from the changed history loses nothing."""
    after = await talk.say()
    assert (after.turn.lost_tokens, after.turn.cause, after.turn.change) == (0, None, None)


@pytest.mark.parametrize("kind", TALKS)
async def test_a_calm_conversation_of_ten_turns_loses_nothing(stage: Stage, kind: str) -> None:
    router, _ = await fleet_of(stage)
    client = await stage.client(router)
    talk = TALKS[kind](1)
    for _ in range(10):
        talk.take(await client.ask(request(talk.path, {"model": "sim-model"} | talk.ask())))
    await router.until(lambda: len(router.records.finished) == 10)
    accounts = [record.turn for record in router.records.finished if record.turn is not None]
    assert [account.number for account in accounts] == list(range(1, 11))
    assert len({account.session for account in accounts}) == 1
    assert [account.lost_tokens for account in accounts] == [0] * 10
    assert [account.cause for account in accounts] == [Cause.FIRST_SEEN] + [None] * 9
    assert [account.change for account in accounts] == [None] * 10
    assert all(account.cached_tokens >= account.history_tokens > 0 for account in accounts[1:])
    assert all(account.idle_s is not None and account.idle_s >= 0 for account in accounts[1:])


async def test_another_system_prompt(stage: Stage) -> None:
    talk = await conversation(stage)
    before = (await talk.turns(3))[-1]
    talk.messages[0]["content"] = "You are somebody else. Be brief. " * 20
    lost(before, await talk.say(), Cause.SYSTEM_CHANGED, 0, "system")
    await calm_again(talk)


async def test_a_system_prompt_that_is_added(stage: Stage) -> None:
    talk = await conversation(stage, messages=[])
    before = (await talk.turns(2))[-1]
    talk.messages.insert(0, {"role": "developer", "content": "From now on you are a pirate. " * 10})
    lost(before, await talk.say(), Cause.SYSTEM_CHANGED, 0, "system")


@pytest.mark.parametrize(
    ("stamp", "later"),
    [
        ("It is 2026-11-30T12:30:05Z. ", "It is 2026-11-30T12:31:47Z. "),
        ("Today is Monday, November 30, 2026. ", "Today is Tuesday, December 1, 2026. "),
        ("Request 0b52aa1c-77f0-4c3d-9d0e-5a7be2f00d11. ", "Request 9c1e77b2-0a4f-4b11-8e7d-c1d0aa35f902. "),
    ],
    ids=["time", "date", "id"],
)
async def test_a_stamp_at_the_head(stage: Stage, stamp: str, later: str) -> None:
    talk = await conversation(stage)
    system = talk.messages[0]["content"]
    talk.messages[0]["content"] = stamp + system
    before = (await talk.turns(2))[-1]
    talk.messages[0]["content"] = later + system
    lost(before, await talk.say(), Cause.STAMPED, 0, "system")


async def test_a_stamp_at_the_head_of_a_first_turn_costs_what_sessions_share(stage: Stage) -> None:
    talk = await conversation(stage)
    system = talk.messages[0]["content"]
    talk.messages[0]["content"] = f"It is 12:30:05. {system}"
    await talk.say()
    other = Conversation(talk.router, talk.client, name=2)
    other.messages[0]["content"] = f"It is 12:31:47. {system}"
    first = await other.say()
    assert (first.turn.number, first.turn.cause, first.cached_tokens) == (1, Cause.STAMPED, 0)
    assert first.turn.lost_tokens == first.turn.history_tokens
    opening_tokens = len(other.messages[0]["content"]) / 4.5
    assert 0.6 * opening_tokens < first.turn.lost_tokens < 1.4 * opening_tokens
    assert first.header["cause"] == "stamped"


async def test_a_message_that_is_stamped_anew(stage: Stage) -> None:
    talk = await conversation(stage)
    question = await talk.say(f"[12:30] {text(5)}")
    before = (await talk.turns(2))[-1]
    talk.messages[1]["content"] = f"[12:44] {text(5)}"
    now = await talk.say()
    lost(before, now, Cause.STAMPED, 1, "user")
    assert now.turn.change is not None
    assert 0 < now.turn.change.kept_tokens < question.prompt_tokens


async def test_content_that_is_written_in_another_way(stage: Stage) -> None:
    talk = await conversation(stage)
    before = (await talk.turns(3))[-1]
    talk.messages[2]["content"] = "  " + talk.messages[2]["content"].replace(" ", "\n", 7).replace(".", "!")
    lost(before, await talk.say(), Cause.REFORMATTED, 2, "assistant")
    await calm_again(talk)


async def test_a_head_that_is_trimmed(stage: Stage) -> None:
    talk = await conversation(stage)
    before = (await talk.turns(4))[-1]
    del talk.messages[1:3]
    lost(before, await talk.say(), Cause.HEAD_TRIMMED, 1, "user")
    await calm_again(talk)


@pytest.mark.parametrize("role", ["user", "system"])
async def test_a_head_that_is_replaced_by_a_summary(stage: Stage, role: str) -> None:
    talk = await conversation(stage)
    before = (await talk.turns(5))[-1]
    talk.messages[1:5] = [{"role": role, "content": "What was said until now: nothing of weight. " * 3}]
    lost(before, await talk.say(), Cause.HEAD_TRIMMED, 1, role)


async def test_turns_that_are_cut_from_the_middle_keep_what_precedes_them(stage: Stage) -> None:
    talk = await conversation(stage)
    seen = await talk.turns(5)
    del talk.messages[5:7]
    now = await talk.say()
    lost(seen[-1], now, Cause.EDITED, 5, "user")
    assert now.turn.change is not None
    assert abs(now.turn.change.kept_tokens - seen[1].prompt_tokens) < 0.2 * seen[-1].prompt_tokens
    assert now.cached_tokens >= whole_blocks(seen[1].prompt_tokens), "up to there it was found"
    await calm_again(talk)


@pytest.mark.parametrize("place", [1, 3, 4])
async def test_a_message_that_is_edited(stage: Stage, place: int) -> None:
    talk = await conversation(stage)
    before = (await talk.turns(4))[-1]
    talk.messages[place]["content"] = text(77)
    lost(before, await talk.say(), Cause.EDITED, place, talk.messages[place]["role"])


async def test_a_message_that_is_put_in(stage: Stage) -> None:
    talk = await conversation(stage)
    before = (await talk.turns(3))[-1]
    talk.messages.insert(2, {"role": "user", "content": text(77)})
    lost(before, await talk.say(), Cause.EDITED, 2, "user")


async def test_other_tools(stage: Stage) -> None:
    talk = await conversation(stage, tools=TOOLS[:3], tool_choice="none")
    before = (await talk.turns(2))[-1]
    talk.body["tools"] = TOOLS
    lost(before, await talk.say(), Cause.TOOLS_CHANGED, None, "tools")


async def test_tools_that_are_taken_away(stage: Stage) -> None:
    talk = await conversation(stage, tools=TOOLS, tool_choice="none")
    before = (await talk.turns(2))[-1]
    del talk.body["tools"], talk.body["tool_choice"]
    lost(before, await talk.say(), Cause.TOOLS_CHANGED, None, "tools")


async def test_tools_in_another_order(stage: Stage) -> None:
    talk = await conversation(stage, tools=TOOLS, tool_choice="none")
    before = (await talk.turns(2))[-1]
    talk.body["tools"] = TOOLS[::-1]
    lost(before, await talk.say(), Cause.TOOLS_REORDERED, None, "tools")
    await calm_again(talk)


async def test_another_salt(stage: Stage) -> None:
    talk = await conversation(stage, cache_salt="tenant-1")
    before = (await talk.turns(2))[-1]
    talk.body["cache_salt"] = "tenant-2"
    lost(before, await talk.say(), Cause.SALT_CHANGED, None, "other")


async def test_another_model(stage: Stage) -> None:
    talk = await conversation(stage, models=("sim-model", "second-model"))
    before = (await talk.turns(2))[-1]
    talk.body["model"] = "second-model"
    lost(before, await talk.say(), Cause.MODEL_CHANGED, None, "other")


async def test_another_template(stage: Stage) -> None:
    """The simulated engine renders nothing by templates and finds all of it, so only the prediction loses it."""
    talk = await conversation(stage, chat_template_kwargs={"enable_thinking": True})
    await talk.turns(2)
    talk.body["chat_template_kwargs"] = {"enable_thinking": False, "style": "short"}
    now = await talk.say()
    change = now.turn.change
    assert change is not None
    assert (change.cause, change.message, change.role) == (Cause.TEMPLATE_CHANGED, None, "template")
    assert (now.header["cause"], now.header["lost"]) == ("template-changed", now.header["history"])


# What is no change


async def test_an_edited_last_message_is_the_same_session_and_loses_nothing_before_it(stage: Stage) -> None:
    talk = await conversation(stage)
    before = (await talk.turns(3))[-1]
    del talk.messages[-2:]
    again = await talk.say(text(88))
    assert (again.turn.session, again.turn.number) == (before.turn.session, 3)
    assert (again.turn.lost_tokens, again.turn.change) == (0, None)


async def test_asking_again_is_the_same_turn(stage: Stage) -> None:
    talk = await conversation(stage)
    before = (await talk.turns(3))[-1]
    talk.messages.pop()
    again = await talk.send()
    assert (again.turn.session, again.turn.number) == (before.turn.session, 3)
    assert (again.turn.lost_tokens, again.turn.cause) == (0, None)


async def test_conversations_that_begin_alike_are_sessions_of_their_own(stage: Stage) -> None:
    one = await conversation(stage)
    await one.turns(3)
    other = Conversation(one.router, one.client)
    seen = [await other.say(text(1)), await other.say("quite another thing " * 30), await other.say()]
    mine = await one.say()
    theirs = await other.say()
    assert mine.turn.session != theirs.turn.session
    assert [turn.turn.change for turn in [*seen, mine, theirs]] == [None] * 5
    assert (mine.turn.lost_tokens, theirs.turn.lost_tokens) == (0, 0)


async def test_nothing_is_said_unasked(stage: Stage) -> None:
    router, _ = await fleet_of(stage, 1)
    talk = TALKS["chat"](1)
    for value in (None, "0"):
        headers = () if value is None else (("x-warmroute-explain", value),)
        answer = await stage.ask(router, request(talk.path, {"model": "sim-model"} | talk.ask(), headers=headers))
        assert answer.header("x-warmroute-explain") is None


async def test_a_prompt_under_one_block_has_no_turn(stage: Stage) -> None:
    router, _ = await fleet_of(stage, 1)
    body = {"model": "sim-model", "messages": [{"role": "user", "content": "hi"}]}
    headers = (("x-warmroute-explain", "1"),)
    answer = await stage.ask(router, request("/v1/chat/completions", body, headers=headers))
    assert answer.header("x-warmroute-explain") is None
    await router.until(lambda: bool(router.records.finished))
    assert router.records.finished[0].turn is None
