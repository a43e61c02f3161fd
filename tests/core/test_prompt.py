import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from router.core.prompt import (
    BLOCK_BYTES,
    LONG_BLOCK_BYTES,
    LONG_PROMPT_BLOCKS,
    MEDIA_BYTES,
    PromptBuilder,
    scope_hash,
    session_hash,
)
from router.core.types import Prompt
from tests.core.worlds import SCOPE, prompt

Messages = list[tuple[str, str]]

texts = st.text(max_size=3 * BLOCK_BYTES)
messages = st.lists(st.tuples(st.sampled_from(["system", "user", "assistant", "tool"]), texts), min_size=1, max_size=6)


def built(parts: Messages) -> Prompt | None:
    builder = PromptBuilder(SCOPE)
    for role, text in parts:
        builder.add(role.encode(), text.encode("utf-8", "surrogatepass"))
    return builder.build()


@given(messages, messages)
def test_a_longer_prompt_keeps_the_hashes_of_its_prefix(head: Messages, tail: Messages) -> None:
    short, long = built(head), built(head + tail)
    if short is not None and long is not None:
        assert long.hashes[: len(short.hashes)] == short.hashes
        assert long.ends_bytes[: len(short.hashes)] == short.ends_bytes


@given(messages)
def test_blocks_are_at_most_block_bytes_and_cover_the_prompt(parts: Messages) -> None:
    made = built(parts)
    if made is None:
        return
    sizes = [end - start for start, end in zip([0, *made.ends_bytes], made.ends_bytes, strict=False)]
    assert all(0 < size <= BLOCK_BYTES for size in sizes)
    assert made.ends_bytes[-1] == sum(len(text.encode("utf-8", "surrogatepass")) for _, text in parts)


def test_a_prompt_under_one_block_has_no_key() -> None:
    assert built([("user", "x" * (BLOCK_BYTES - 1))]) is None
    assert built([("user", "x" * BLOCK_BYTES)]) is not None


def test_editing_a_message_keeps_the_blocks_before_it() -> None:
    before = prompt(("system", "s" * 600), ("user", "a" * 600), ("assistant", "b" * 600))
    after = prompt(("system", "s" * 600), ("user", "A" + "a" * 599), ("assistant", "b" * 600))
    assert before.hashes[:2] == after.hashes[:2]
    assert all(left != right for left, right in zip(before.hashes[2:], after.hashes[2:], strict=True))


def test_roles_and_scopes_matter() -> None:
    said_by_user = prompt(("user", "x" * 600))
    assert said_by_user.hashes != prompt(("assistant", "x" * 600)).hashes
    assert said_by_user.hashes != prompt(("user", "x" * 600), scope=scope_hash("m", "salt")).hashes
    assert scope_hash("a", "bc") != scope_hash("ab", "c")


def test_the_blocks_at_which_answers_begin_are_known() -> None:
    made = prompt(("system", "s" * 600), ("user", "a" * 600), ("assistant", "b" * 600), ("user", "c"))
    assert made.answers_at == [4]


def test_media_count_by_the_digest_of_the_whole_part() -> None:
    def with_image(url: bytes) -> Prompt:
        builder = PromptBuilder(SCOPE)
        builder.add(b"user", b"look")
        builder.add_media(url)
        made = builder.build()
        assert made is not None
        return made

    one, other = with_image(b"A" * 5000 + b"1"), with_image(b"A" * 5000 + b"2")
    assert one.hashes[0] == other.hashes[0]
    assert one.hashes[1] != other.hashes[1]
    assert one.ends_bytes[-1] == len(b"look") + MEDIA_BYTES


def test_blocks_grow_far_into_a_long_prompt_and_prefixes_still_agree() -> None:
    long_text = "ab" * (4 << 20)
    whole = prompt(("user", long_text))
    first = LONG_PROMPT_BLOCKS * BLOCK_BYTES
    rest = len(long_text) - first
    assert len(whole.hashes) == LONG_PROMPT_BLOCKS + -(-rest // LONG_BLOCK_BYTES)
    shorter = prompt(("user", long_text[: 2 << 20]))
    full = len(shorter.hashes) - 1
    assert shorter.hashes[:full] == whole.hashes[:full]


def test_hashes_are_equal_in_every_process() -> None:
    code = (
        "from tests.core.worlds import *;print(prompt(('user', 'x' * 2000)).hashes, session_hash(SCOPE, 'session-1'))"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert runs == {f"{prompt(('user', 'x' * 2000)).hashes} {session_hash(SCOPE, 'session-1')}\n"}


def test_session_ids_are_compared_whole() -> None:
    assert session_hash(SCOPE, "session-1") != session_hash(SCOPE, "session-12")


def test_a_text_to_be_completed_is_keyed_by_its_whole_blocks_and_counts_the_rest() -> None:
    def opened(length: int) -> Prompt:
        builder = PromptBuilder(SCOPE)
        builder.add_open(b"text", b"x" * length)
        made = builder.build()
        assert made is not None
        return made

    short, long = opened(1200), opened(1300)
    assert (len(short.hashes), short.open_bytes, short.total_bytes) == (2, 1200 - 2 * BLOCK_BYTES, 1200)
    assert long.hashes[:2] == short.hashes
    assert opened(2 * BLOCK_BYTES).open_bytes == 0
    assert prompt(("user", "x" * 1200)).open_bytes is None
