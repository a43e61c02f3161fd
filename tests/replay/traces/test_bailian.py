"""Bailian's format: parents make sessions, gaps make think times."""

import json

import pytest

from router.replay.traces.bailian import read_bailian
from router.replay.traces.lines import TraceError


def line(chat: int, parent: int, at_s: float, prompt: int, answer: int, blocks: list[int], **more) -> str:
    record = {"chat_id": chat, "parent_chat_id": parent, "timestamp": at_s, "input_length": prompt}
    return json.dumps({**record, "output_length": answer, "type": "text", "turn": 1, "hash_ids": blocks, **more})


LINES = [
    line(159, -1, 61.114, 40, 132, [7, 8, 9]),
    line(161, 160, 80.0, 64, 5, [7, 8, 1, 2]),
    line(160, 159, 70.0, 50, 100, [7, 8, 1]),
    line(162, 999, 90.0, 16, 1, [3]),
]


def test_requests_come_in_order_with_their_whole_blocks():
    requests = list(read_bailian(LINES))
    assert [request.arrives_s for request in requests] == [61.114, 70.0, 80.0, 90.0]
    assert [request.block_hashes for request in requests] == [[7, 8], [7, 8, 1], [7, 8, 1, 2], [3]]
    assert requests[0].block_runs == ((7, 2),)
    assert {request.block_tokens for request in requests} == {16}
    assert (requests[1].prompt_tokens, requests[1].output_tokens, requests[1].finish_reason) == (50, 100, "stop")


def test_a_session_is_a_root_and_all_behind_it():
    assert [request.session_id for request in read_bailian(LINES)] == ["159", "159", "159", "162"]


def test_think_time_is_the_gap_without_the_answer():
    think_s = [request.think_s for request in read_bailian(LINES)]
    assert think_s == pytest.approx([0.0, 70.0 - 61.114 - 132 * 0.02, 8.0, 0.0])


def test_nobody_thinks_for_less_than_nothing():
    lines = [line(1, -1, 0.0, 16, 5_000, [1]), line(2, 1, 1.0, 32, 1, [1, 2])]
    assert [request.think_s for request in read_bailian(lines)] == [0.0, 0.0]


def test_a_root_needs_no_parent():
    without = json.loads(LINES[0])
    del without["parent_chat_id"]
    (request,) = read_bailian([json.dumps(without)])
    assert request.session_id == "159"


def test_an_error_names_its_line():
    with pytest.raises(TraceError, match=r"^line 3: Object missing required field `timestamp`$"):
        list(read_bailian([*LINES[:2], LINES[2].replace("timestamp", "time")]))
