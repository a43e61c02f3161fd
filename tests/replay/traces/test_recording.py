"""Warmroute's own recordings: engine blocks from the router's, answers from the next turn, ends that agree."""

import json
from array import array
from base64 import b64encode

import pytest

from router.replay.traces.lines import TraceError
from router.replay.traces.recording import read_recording

HEAD = json.dumps({"warmroute_recording": 1, "block_tokens": 16, "kv_tokens": 3_200, "replicas": 2, "version": "1"})
ONE, TWO, THREE, FOUR = (number << 40 for number in (1, 2, 3, 4))
SHIFT = 2  # 62 bits of a hash are used


def line(at_ms: int, prompt: int, answer: int, hashes: list[int], ends: list[int], **more) -> str:
    packed = b64encode(array("Q", hashes).tobytes()).decode()
    record = {"timestamp": at_ms, "input_length": prompt, "output_length": answer, "hash_ids": [1], "status": 200}
    return json.dumps({**record, "hashes": packed, "ends": ends, "finish_reason": "stop", "total_s": 1.0, **more})


def blocks(*named: tuple[int, int]) -> list[int]:
    return [(block_hash >> SHIFT) + number for number, block_hash in named]


def test_the_engines_blocks_are_those_of_the_routers_that_cover_their_ends():
    (request,) = read_recording([HEAD, line(0, 70, 10, [ONE, TWO], [40, 70])])
    assert request.block_tokens == 16
    assert request.block_hashes == blocks((0, ONE), (1, ONE), (2, TWO), (3, TWO))
    assert (request.prompt_hashes, request.prompt_ends_tokens) == ((ONE, TWO), (40, 70))
    assert (request.prompt_tokens, request.output_tokens, request.session_id) == (70, 10, "")


def test_an_answers_blocks_are_named_by_the_next_turn():
    lines = [line(5_000, 120, 8, [ONE, TWO, THREE], [40, 100, 120]), line(0, 40, 44, [ONE], [40])]
    first, second = read_recording([HEAD, *lines])
    assert first.arrives_s == 0.0
    # 40 + 44 tokens fill five blocks, the third of which the prompt began.
    assert first.block_hashes == blocks((0, ONE), (1, ONE), (2, TWO), (3, TWO), (4, TWO))
    assert second.block_hashes == blocks((0, ONE), (1, ONE), (2, TWO), (3, TWO), (4, TWO), (5, TWO), (6, THREE))


def test_an_answer_that_nobody_goes_on_from_has_no_blocks():
    first, _ = read_recording([HEAD, line(0, 40, 100, [ONE], [40]), line(1, 80, 1, [THREE, FOUR], [40, 80])])
    assert first.block_hashes == blocks((0, ONE), (1, ONE))


def test_turns_agree_on_where_their_common_blocks_lie():
    """The second turn's own estimate has them elsewhere, and only what is new follows it."""
    next_turn = line(9, 140, 1, [ONE, TWO, THREE, FOUR], [30, 60, 100, 140])
    _, second = read_recording([HEAD, line(0, 70, 1, [ONE, TWO], [40, 70]), next_turn])
    assert second.prompt_ends_tokens == (40, 70, 70 + 35, 140)
    assert second.block_hashes[:4] == blocks((0, ONE), (1, ONE), (2, TWO), (3, TWO))


def test_a_prompt_without_an_end_of_its_own():
    """Seen twice, the second time shorter by the engine's count than its blocks were taken to be."""
    _, second = read_recording([HEAD, line(0, 80, 1, [ONE, TWO], [40, 80]), line(9, 70, 1, [ONE, TWO], [35, 70])])
    assert second.prompt_ends_tokens == (40, 70)


def test_think_time_counts_from_the_end_of_the_sessions_last_answer():
    lines = [
        line(0, 40, 1, [ONE], [40], session="a", total_s=2.5),
        line(4_000, 40, 1, [TWO], [40], session="b"),
        line(10_000, 40, 1, [ONE], [40], session="a"),
        line(10_100, 40, 1, [ONE], [40], session="a"),
        line(20_000, 40, 1, [ONE], [40]),
    ]
    requests = read_recording([HEAD, *lines])
    assert [request.think_s for request in requests] == [0.0, 0.0, 7.5, 0.0, 0.0]
    assert [request.session_id for request in requests] == ["a", "b", "a", "a", ""]


def test_errors_empty_prompts_and_further_first_lines_are_passed_over():
    lines = [line(0, 40, 1, [ONE], [40], status=400), line(1, 0, 1, [], []), HEAD, line(2, 40, 1, [ONE], [40])]
    assert [request.arrives_s for request in read_recording([HEAD, *lines])] == [0.002]


def test_a_request_without_blocks_hits_nothing():
    (request,) = read_recording([HEAD, line(0, 40, 1, [], [], finish_reason=None)])
    assert (request.block_hashes, request.finish_reason) == ([], "stop")


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([line(0, 40, 1, [ONE], [40])], "line 1: Object missing required field `warmroute_recording`"),
        ([], "line 1: a recording begins with the line that says how its fleet was"),
        ([HEAD, "{}", '{"input_length": 3}'], "line 3: Object missing required field `timestamp`"),
        ([HEAD, line(0, 40, 1, [ONE], [40, 50])], "line 2: 1 `hashes`, 2 `ends`"),
        (
            [HEAD, line(0, 40, 1, [], []).replace('"hashes": ""', '"hashes": "AAAA"')],
            "line 2: `hashes`: bytes length not a multiple of item size",
        ),
        (
            [HEAD, line(0, 40, 1, [], []).replace('"hashes": ""', '"hashes": "&"')],
            "line 2: `hashes`: Only base64 data is allowed",
        ),
    ],
)
def test_an_error_names_its_line(lines: list[str], told: str):
    with pytest.raises(TraceError) as caught:
        read_recording(lines)
    assert str(caught.value) == told
