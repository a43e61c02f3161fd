"""The format is told by the first line; sessions are grouped; what is no trace is refused."""

import json

import pytest

from router.replay.traces.formats import read_trace
from router.replay.traces.lines import TraceError

MOONCAKE = json.dumps({"timestamp": 2_000, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]})
BAILIAN = [
    json.dumps({
        "chat_id": chat, "parent_chat_id": parent, "timestamp": chat * 1.5, "input_length": 32, "output_length": 1,
        "hash_ids": [1, 2],
    })
    for chat, parent in ((1, -1), (2, -1), (3, 1))
]  # fmt: skip
RECORDING = [
    json.dumps({"warmroute_recording": 1, "block_tokens": 32, "kv_tokens": 640, "replicas": 3}),
    json.dumps({"timestamp": 7, "input_length": 40, "output_length": 1, "hash_ids": [1], "session": "a"}),
    json.dumps({"timestamp": 9, "input_length": 40, "output_length": 1, "hash_ids": [1]}),
    json.dumps({"timestamp": 8, "input_length": 40, "output_length": 1, "hash_ids": [1]}),
]


def coding(name: str, block_tokens: int) -> str:
    request = {"t": 3.0, "type": "n", "in": 200, "out": 10, "hash_ids": [[1, 3]], "stop": "", "think_time": 1.0}
    return json.dumps({"id": name, "block_size": block_tokens, "requests": [request]})


def test_mooncake():
    trace = read_trace([MOONCAKE, MOONCAKE.replace("2000", "1000")])
    assert (trace.format, trace.block_tokens, trace.stamped, trace.names_sessions) == ("mooncake", 512, True, False)
    assert [request.arrives_s for request in trace.requests] == [1.0, 2.0]
    assert (len(trace.sessions), trace.duration_s, trace.fleet) == (2, 2.0, None)


def test_bailian():
    trace = read_trace(BAILIAN)
    assert (trace.format, trace.block_tokens, trace.stamped, trace.names_sessions) == ("bailian", 16, True, True)
    assert [[request.arrives_s for request in session] for session in trace.sessions] == [[1.5, 4.5], [3.0]]


def test_recording():
    trace = read_trace(RECORDING)
    assert (trace.format, trace.block_tokens, trace.stamped, trace.names_sessions) == ("recording", 32, True, True)
    assert [request.arrives_s for request in trace.requests] == [0.007, 0.008, 0.009]
    assert len(trace.sessions) == 3
    assert trace.fleet is not None
    assert (trace.fleet.kv_tokens, trace.fleet.replicas) == (640, 3)


def test_coding():
    trace = read_trace([coding("a", 64), coding("b", 64)])
    assert (trace.format, trace.block_tokens, trace.stamped, trace.names_sessions) == ("coding", 64, False, True)
    assert trace.duration_s == 3.0


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], "line 1: the trace is empty"),
        (["\n", MOONCAKE], "line 1: the trace is empty"),
        (["time,tokens"], "line 1: no JSON object: JSON is malformed: invalid character (byte 4)"),
        (["[1]"], "line 1: neither Mooncake's format, nor Bailian's, nor coding agents', nor a recording"),
        (['{"prompt": 1}'], "line 1: neither Mooncake's format, nor Bailian's, nor coding agents', nor a recording"),
        ([MOONCAKE, coding("a", 64)], "line 2: Object missing required field `timestamp`"),
        (RECORDING[:1], "line 1: the trace has no requests"),
        ([coding("a", 64), coding("b", 16)], "line 1: sessions with blocks of 16 and 64 tokens: split the file"),
    ],
)
def test_what_is_no_trace(lines: list[str], told: str):
    with pytest.raises(TraceError) as caught:
        read_trace(lines)
    assert str(caught.value) == told
