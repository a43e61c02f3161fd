"""What is said of two prompts that differ: the first part that does, and how."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.misses.change import common, difference
from router.core.misses.parts import hash_parts
from router.core.misses.types import Cause, Change
from tests.core.misses.turns import SYSTEM, TOOLS, Memory, Said, answer, asks, chat, prompt_of, question

LONG = chat(4)


def compared(old: Said, new: Said) -> tuple[Cause, int | None, str] | None:
    before, after = prompt_of(old).parts or [], prompt_of(new).parts or []
    found = difference(hash_parts(before, lambda _: None), hash_parts(after, lambda _: None), after)
    return None if found is None else found[:3]


def replaced(said: Said, place: int, words: str) -> Said:
    return [(role, words if at == place else content) for at, (role, content) in enumerate(said)]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (LONG, replaced(LONG, 0, "Another. " * 80), (Cause.SYSTEM_CHANGED, 0, "system")),
        (LONG, LONG[1:], (Cause.SYSTEM_CHANGED, 0, "system")),
        (LONG, [SYSTEM, ("developer", "And be kind."), *LONG[1:]], (Cause.SYSTEM_CHANGED, 1, "system")),
        (LONG, [TOOLS, *LONG], (Cause.TOOLS_CHANGED, None, "tools")),
        ([TOOLS, *LONG], LONG, (Cause.TOOLS_CHANGED, None, "tools")),
        ([TOOLS, *LONG], [("tools", '[{"name":"stop"}]'), *LONG], (Cause.TOOLS_CHANGED, None, "tools")),
        ([TOOLS, *LONG], [("tools", TOOLS[1].replace(",", ", ")), *LONG], (Cause.REFORMATTED, None, "tools")),
        (
            [("tools", '[{"name":"a"},{"name":"b"}]'), *LONG],
            [("tools", '[{"name":"b"},{"name":"a"}]'), *LONG],
            (Cause.TOOLS_REORDERED, None, "tools"),
        ),
        (LONG, [("template", "{{ x }}"), *LONG], (Cause.TEMPLATE_CHANGED, None, "template")),
        (
            [("template-arguments", '{"thinking":true}'), *LONG],
            [("template-arguments", '{"thinking":false}'), *LONG],
            (Cause.TEMPLATE_CHANGED, None, "template"),
        ),
        ([("documents", "[1]"), *LONG], LONG, (Cause.TEMPLATE_CHANGED, None, "template")),
        (LONG, [SYSTEM, *LONG[3:]], (Cause.HEAD_TRIMMED, 1, "user")),
        (LONG, [SYSTEM, *LONG[2:]], (Cause.HEAD_TRIMMED, 1, "assistant")),
        (LONG, [SYSTEM, ("user", "Summary."), *LONG[5:]], (Cause.HEAD_TRIMMED, 1, "user")),
        (LONG, [SYSTEM, ("system", "Summary."), *LONG[5:]], (Cause.HEAD_TRIMMED, 1, "system")),
        (LONG[1:], LONG[3:], (Cause.HEAD_TRIMMED, 0, "user")),
        (LONG, [*LONG[:3], *LONG[5:]], (Cause.EDITED, 3, "user")),
        (LONG, [SYSTEM, question(99), *LONG[1:]], (Cause.EDITED, 1, "user")),
        (LONG, replaced(LONG, 1, "What else is there to be said?"), (Cause.EDITED, 1, "user")),
        (LONG, replaced(LONG, 4, "Other words altogether, and quite a few of them."), (Cause.EDITED, 4, "assistant")),
        (LONG, replaced(LONG, 3, LONG[3][1].replace("1th", "21th")), (Cause.STAMPED, 3, "user")),
        (LONG, replaced(LONG, 3, LONG[3][1].replace(" ", "  ")), (Cause.REFORMATTED, 3, "user")),
        (LONG, [SYSTEM, ("pirate", LONG[1][1]), *LONG[2:]], (Cause.EDITED, 1, "other")),
        (LONG, LONG, None),
        (LONG, [*LONG, answer(3), question(4)], None),
        (LONG, LONG[:3], None),
    ],
)
def test_the_first_part_that_differs_decides(
    old: Said, new: Said, expected: tuple[Cause, int | None, str] | None
) -> None:
    assert compared(old, new) == expected


def test_what_precedes_it_is_kept() -> None:
    memory = Memory()
    memory.serve(asks(LONG))
    said = [*replaced(LONG, 3, "Other words, many of them. " * 6), answer(3), question(4)]
    change = memory.look(asks(said)).origin.change
    assert change is not None
    sizes = [len(content) for _, content in LONG]
    assert change.kept_ratio == sum(sizes[:3]) / sum(sizes)
    assert change.change(1_000) == Change(Cause.EDITED, 3, "user", int(1_000 * change.kept_ratio))


STAMPED = ("system", "Now it is 12:30. " + SYSTEM[1])
LATER = ("system", "Now it is 23:59. " + SYSTEM[1])


@pytest.mark.parametrize(
    ("known", "now", "expected"),
    [
        ([STAMPED], [LATER], (Cause.STAMPED, 0, "system")),
        ([TOOLS, STAMPED], [TOOLS, LATER], (Cause.STAMPED, 0, "system")),
        ([SYSTEM], [("system", SYSTEM[1].replace(" ", "\n"))], (Cause.REFORMATTED, 0, "system")),
        (
            [("tools", '[{"name":"a"},{"name":"b"}]'), SYSTEM],
            [("tools", '[{"name":"b"},{"name":"a"}]'), SYSTEM],
            (Cause.TOOLS_REORDERED, None, "tools"),
        ),
        ([SYSTEM], [SYSTEM], None),
        ([SYSTEM], [("system", "Another. " * 80)], None),
        ([TOOLS, SYSTEM], [SYSTEM], None),
    ],
)
def test_a_first_turn_whose_beginning_is_nearly_that_of_others(
    known: Said, now: Said, expected: tuple[Cause, int | None, str] | None
) -> None:
    memory = Memory()
    memory.serve(asks([*known, question(1)]))
    seen = memory.look(asks([*now, question(2)]))
    assert (seen.origin.number, seen.origin.before) == (1, None)
    assert (None if seen.origin.change is None else seen.origin.change[:3]) == expected
    memory.serve(asks([*now, question(2)]))
    assert memory.look(asks([*now, question(3)])).origin.change is None, "now that one is known, too"


@given(st.binary(max_size=96).map(lambda data: data[: len(data) // 24 * 24]), st.binary(max_size=48))
def test_the_common_beginning_is_symmetric_and_whole(one: bytes, more: bytes) -> None:
    other = one + more[: len(more) // 24 * 24]
    assert common(one, other) == common(other, one) == len(one) // 24
    if one:
        changed = bytes([one[0] ^ 1]) + one[1:]
        assert common(changed, other) == 0
