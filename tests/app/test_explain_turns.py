"""`warmroute explain` of several turns: what each keeps of the one before, and what was changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.app.dashboard.causes import words_of_causes
from router.app.settings.sources import ConfigError
from router.app.terminal.bodies import Body, read_bodies
from router.app.terminal.turns import Step, as_json, steps
from router.core.misses.types import Cause
from tests.app.test_explain import explain, refused, saved
from tests.rig.client import CHAT
from tests.rig.talks import SYSTEM, text

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "description": text(seed, 20)}}}
    for seed, name in enumerate(("tide", "berth", "weather"))
]

Message = dict[str, Any]


def messages(turns: int, system: str = SYSTEM) -> list[Message]:
    """What the last of so many turns sends."""
    said: list[Message] = [{"role": "system", "content": system}]
    for turn in range(turns):
        said.append({"role": "user", "content": text(turn)})
        said.append({"role": "assistant", "content": text(100 + turn, 60)})
    return said[:-1]


def body(said: list[Message], **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": said} | fields


def compared(*turns: dict[str, Any], path: str = CHAT) -> list[Step]:
    return steps([Body(f"turn-{number}", json.dumps(turn).encode()) for number, turn in enumerate(turns, 1)], path)


def only(*turns: dict[str, Any], path: str = CHAT) -> Step:
    (step,) = compared(*turns, path=path)
    return step


# What is kept


@pytest.mark.parametrize("turns", [1, 2, 7])
def test_a_chat_that_grows_keeps_all(turns: int) -> None:
    step = only(body(messages(turns)), body(messages(turns + 1)))
    assert step.change is None
    assert step.lost_tokens == 0
    assert step.history_tokens == step.before.tokens == step.kept_tokens > 250
    assert step.after.tokens > step.before.tokens


def test_the_same_turn_again_keeps_all() -> None:
    assert only(body(messages(3)), body(messages(3))).lost_tokens == 0


def test_a_turn_that_goes_back_keeps_what_it_has() -> None:
    step = only(body(messages(3)), body(messages(2)))
    assert (step.lost_tokens, step.history_tokens) == (0, step.after.tokens)


def test_what_does_not_stand_in_the_prompt_changes_nothing() -> None:
    assert only(body(messages(2), temperature=0.1, user="a"), body(messages(3), temperature=0.9)).lost_tokens == 0


@given(turns=st.integers(2, 6), place=st.integers(0, 9))
def test_a_change_in_one_message_keeps_what_stands_before_it(turns: int, place: int) -> None:
    now = messages(turns)
    place %= len(now) - 2  # in the turn before, which ends two messages earlier
    now[place] = now[place] | {"content": "quite another beginning, " + now[place]["content"]}
    step = only(body(messages(turns - 1)), body(now))
    assert step.change is not None
    assert step.change.message == place
    kept_bytes = sum(len(message["content"]) for message in now[:place])
    assert step.kept_tokens == round(kept_bytes / 4)
    assert step.lost_tokens == step.before.tokens - step.kept_tokens > 0


# What was changed


def changed(**fields: Any) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Pairs of turns by the cause that each is an example of."""
    two, three = messages(2), messages(3)
    stamp = "It is {} on the clock of the harbour. " + SYSTEM
    edited = [*three[:3], {"role": "user", "content": text(77)}, *three[4:]]
    spaced = [three[0], three[1] | {"content": three[1]["content"].replace(" ", "  ")}, *three[2:]]
    return {
        Cause.MODEL_CHANGED: (body(two), body(three, model="other")),
        Cause.SALT_CHANGED: (body(two, cache_salt="a"), body(three, cache_salt="b")),
        Cause.TEMPLATE_CHANGED: (body(two), body(three, chat_template_kwargs={"thinking": True})),
        Cause.TOOLS_CHANGED: (body(two, tools=TOOLS), body(three, tools=TOOLS[:2])),
        Cause.TOOLS_REORDERED: (body(two, tools=TOOLS), body(three, tools=TOOLS[::-1])),
        Cause.SYSTEM_CHANGED: (body(two), body(messages(3, "Be brief and kind. " + SYSTEM))),
        Cause.STAMPED: (body(messages(2, stamp.format("12:31"))), body(messages(3, stamp.format("12:35")))),
        Cause.REFORMATTED: (body(two), body(spaced)),
        Cause.HEAD_TRIMMED: (body(messages(4)), body([three[0], *messages(5)[3:]])),
        Cause.EDITED: (body(two), body(edited)),
    }


@pytest.mark.parametrize("cause", changed())
async def test_each_change_is_told_with_its_cure(cause: Cause, tmp_path: Path) -> None:
    before, after = changed()[cause]
    step = only(before, after)
    assert step.change is not None
    assert (step.change.cause, step.lost_tokens > 0) == (cause, True)
    files = saved(tmp_path, before, "1.json"), saved(tmp_path, after, "2.json")
    code, out, err = await explain(*files, COLUMNS="200")
    assert (code, err) == (1, "")
    assert f"turn 2  loses {step.lost_tokens:,} of {step.history_tokens:,} tokens" in out
    assert f": {cause}\n" in "\n".join(line.rstrip() for line in out.splitlines())
    assert f"cure     {words_of_causes()[cause].cure}" in out


def test_a_changed_tool_list_loses_all_and_is_no_message() -> None:
    step = only(*changed()[Cause.TOOLS_REORDERED])
    assert step.change is not None
    assert (step.change.message, step.change.role, step.kept_tokens) == (None, "tools", 0)


# Other forms


def test_texts_to_be_completed() -> None:
    first = SYSTEM + text(1)
    prompts = (first, first + text(2), first + text(2)[:-9] + "another end")
    kept, lost = compared(*({"model": "m", "prompt": prompt} for prompt in prompts), path="/v1/completions")
    assert (kept.lost_tokens, kept.history_tokens) == (0, kept.before.tokens)
    assert lost.change is not None
    assert lost.change.cause is Cause.EDITED
    assert 0 < lost.lost_tokens < 200


def test_token_ids_are_counted_as_such() -> None:
    ids = list(range(1_000))
    kept, lost = compared(
        {"prompt": ids}, {"prompt": [*ids, 7, 8]}, {"prompt": [9, *ids]}, path="/v1/completions"
    )  # fmt: skip
    assert (kept.history_tokens, kept.lost_tokens, kept.after.tokens) == (1_000, 0, 1_002)
    assert lost.lost_tokens == 1_002


def test_anthropic_bodies_have_their_system_prompt_before_the_messages() -> None:
    said = messages(3)[1:]
    kept, lost = compared(
        {"system": SYSTEM, "messages": said[:1]}, {"system": SYSTEM, "messages": said[:3]},
        {"system": "Now! " + SYSTEM, "messages": said}, path="/v1/messages",
    )  # fmt: skip
    assert kept.lost_tokens == 0
    assert lost.change is not None
    assert (lost.change.cause, lost.change.message) == (Cause.SYSTEM_CHANGED, None)


def test_what_is_shorter_than_a_block_is_not_recognised_and_not_lost() -> None:
    step = only(body([{"role": "user", "content": "hello"}]), body(messages(2)))
    assert (step.history_tokens, step.lost_tokens, step.change) == (0, 0, None)


def test_a_body_of_another_form_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"turn-2 is no body of /v1/chat/completions"):
        compared(body(messages(1)), {"messages": "hello"})
    with pytest.raises(ConfigError, match=r"reads no prompts of /v1/audio/speech; it reads those of /v1/chat/"):
        compared(body(messages(1)), body(messages(2)), path="/v1/audio/speech")


# The command


async def test_a_file_of_lines_has_turns_in_order(tmp_path: Path) -> None:
    turns = [messages(1), messages(2), messages(3, "Hear, hear! " + SYSTEM)]
    lines = "\r\n".join(json.dumps(body(said)) for said in turns) + "\n\n"
    code, out, err = await explain(saved(tmp_path, lines.encode(), "chat.jsonl"), COLUMNS="200")
    assert (code, err) == (1, "")
    assert "turn 2  keeps all " in out
    assert "turn 3  loses " in out
    assert "chat.jsonl:3" in out
    kept = saved(tmp_path, "\n".join(json.dumps(body(said)) for said in turns[:2]).encode(), "kept.jsonl")
    assert (await explain(kept))[0] == 0


async def test_json_has_a_row_for_each_step(tmp_path: Path) -> None:
    files = [saved(tmp_path, body(messages(turns)), f"{turns}.json") for turns in (1, 2, 3)]
    code, out, _ = await explain("--json", *files)
    assert code == 0
    expected = [as_json(step) for step in steps(read_bodies(files), CHAT)]
    assert json.loads(out) == expected
    assert [row["to"] for row in expected] == files[1:]
    assert set(expected[0]) == {
        "from", "to", "history_tokens", "kept_tokens", "lost_tokens", "cause", "message", "role",
    }  # fmt: skip


async def test_no_text_of_a_prompt_is_printed(tmp_path: Path) -> None:
    said = messages(2)
    said[1]["role"] = "secret-role"
    files = saved(tmp_path, body(messages(1)), "1.json"), saved(tmp_path, body(said), "2.json")
    _, out, _ = await explain(*files)
    assert "secret-role" not in out
    assert "harbour" not in out


async def test_headers_are_for_one_request(tmp_path: Path) -> None:
    files = saved(tmp_path, body(messages(1)), "1.json"), saved(tmp_path, body(messages(2)), "2.json")
    assert "--header is for one request" in await refused("-H", "x-session-id: a", *files)
