"""Mooncake's format: sizes, times, whole blocks."""

import json

import pytest

from router.replay.traces.lines import TraceError
from router.replay.traces.mooncake import read_mooncake
from router.sim.engine import Engine, EngineConfig, Finished

MOONCAKE = [
    json.dumps({"timestamp": 0, "input_length": 1_100, "output_length": 500, "hash_ids": [0, 1, 2]}),
    json.dumps({"timestamp": 27_482, "input_length": 1_536, "output_length": 3, "hash_ids": [0, 1, 9]}),
]


def test_mooncake():
    first, second = read_mooncake(MOONCAKE)
    assert (first.arrives_s, second.arrives_s) == (0.0, 27.482)
    assert (first.prompt_tokens, first.output_tokens, first.think_s) == (1_100, 500, None)
    assert (first.block_hashes, second.block_hashes) == ([0, 1], [0, 1, 9])
    assert first.block_runs == ((0, 2),)
    engine = Engine(EngineConfig(kv_tokens=512 * 20, block_tokens=first.block_tokens))
    engine.submit(first.sim_request("1"), first.arrives_s)
    engine.advance(second.arrives_s)
    engine.submit(second.sim_request("2"), second.arrives_s)
    end = engine.advance(1_000.0)[-1]
    assert isinstance(end, Finished)
    assert (end.cached_tokens, end.reason, end.generated_tokens) == (1_024, "stop", 3)


GOOD = MOONCAKE[0]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 2: Input data was truncated"),
        ("[]", "line 2: Expected `object`, got `array`"),
        (GOOD.replace("input_length", "in"), "line 2: Object missing required field `input_length`"),
        (GOOD.replace("1100", "0"), "line 2: Expected `int` >= 1 - at `$.input_length`"),
        (GOOD.replace("500", "-1"), "line 2: Expected `int` >= 0 - at `$.output_length`"),
        (GOOD.replace("[0", '["a"'), "line 2: Expected `int`, got `str` - at `$.hash_ids[0]`"),
    ],
)
def test_an_error_names_its_line(line: str, told: str):
    with pytest.raises(TraceError) as caught:
        list(read_mooncake([GOOD, line, GOOD]))
    assert (str(caught.value), caught.value.line) == (told, 2)


def test_blank_lines_count_and_are_passed_over():
    assert len(list(read_mooncake([GOOD, "", " \n", GOOD]))) == 2
    with pytest.raises(TraceError, match="line 3"):
        list(read_mooncake([GOOD, "", "x"]))
