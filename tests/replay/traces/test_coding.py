"""Recorded coding agents: sessions, sub-agents, think times."""

import json

import pytest

from router.replay.traces.coding import read_coding_sessions
from router.replay.traces.lines import TraceError


def request(t: float, prompt_tokens: int, runs: list[list[int]], **more) -> dict:
    return {"t": t, "type": "n", "in": prompt_tokens, "out": 10, "hash_ids": runs, "stop": "tool_use", **more}


CODING = [
    json.dumps({
        "id": "trace_1", "block_size": 64, "requests": [
            request(0.0, 200, [[1, 3]], think_time=0.0),
            {"t": 5.0, "type": "subagent", "agent_id": "agent_001", "requests": [request(0.0, 64, [[9, 1]])]},
            request(9.0, 330, [[1, 2], [7, 3]], stop="end_turn"),
        ],
    }),
    json.dumps({"id": "trace_2", "block_size": 64, "requests": [request(0.0, 200, [[1, 3]], think_time=2.5, stop="")]}),
]  # fmt: skip


def test_coding_sessions():
    one, agent, other = read_coding_sessions(CODING)
    assert [entry.session_id for entry in (one[0], agent[0], other[0])] == ["trace_1", "trace_1/agent_001", "trace_2"]
    assert [(entry.arrives_s, entry.think_s) for entry in one] == [(0.0, 0.0), (9.0, 0.0)]
    assert [(entry.prompt_tokens, entry.output_tokens) for entry in one] == [(200, 10), (330, 10)]
    assert [entry.finish_reason for entry in (*one, *other)] == ["tool_calls", "stop", "stop"]
    assert other[0].think_s == 2.5
    first, second = one[0].block_hashes, one[1].block_hashes
    assert (len(first), len(second)) == (3, 5)
    assert first[:2] == second[:2]
    assert second[2] - second[1] == 5
    assert agent[0].block_hashes[0] - first[0] == 8


def test_sessions_share_no_blocks():
    one, _, other = read_coding_sessions(CODING)
    assert not set(one[0].block_hashes) & set(other[0].block_hashes)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('"in": 64', '"i": 64'), "line 2: a request of the session lacks the field `in`"),
        (('"block_size": 64', '"block_size": 0'), "line 2: Expected `int` >= 1 - at `$.block_size`"),
        (('"id": "trace_1", ', ""), "line 2: Object missing required field `id`"),
        (("[9, 1]", "[9]"), "line 2: Expected `array` of length 2 - at `$.requests[1].requests[0].hash_ids[0]`"),
    ],
)
def test_an_error_names_its_line(change: tuple[str, str], told: str):
    assert change[0] in CODING[0]
    with pytest.raises(TraceError) as caught:
        list(read_coding_sessions([CODING[1], CODING[0].replace(*change)]))
    assert str(caught.value) == told
