"""The benchmarks of what is learnt ask and count right."""

import json
from math import inf
from pathlib import Path
from random import Random

from benchmarks.costs import PAIR_TOKEN_RATIO, errors, prefills
from benchmarks.returns import IDLE_S, WITHIN_S, TurnEnd, agents, cases, chats, row
from router.core.curves import ReturnClass

CHAT = ReturnClass.of("stop", 1, from_tool=False)


def test_learnt_costs_foretell_attention_and_a_rate_does_not() -> None:
    by_rate, by_cost = errors(prefills(minutes=3, per_s=1.0, seed=1), PAIR_TOKEN_RATIO)
    assert len(by_rate) == len(by_cost) > 50
    assert sum(by_cost) < sum(by_rate) / 2


def test_chats_go_on_where_a_prompt_begins_with_the_whole_of_an_earlier_one(tmp_path: Path) -> None:
    trace = tmp_path / "chats.jsonl"
    rows = [
        {"timestamp": 0, "input_length": 1_100, "output_length": 100, "hash_ids": [0, 1, 2]},
        {"timestamp": 1_000, "input_length": 1_100, "output_length": 100, "hash_ids": [0, 3, 4]},
        {"timestamp": 30_000, "input_length": 1_700, "output_length": 100, "hash_ids": [0, 1, 5, 6]},
        {"timestamp": 90_000, "input_length": 2_100, "output_length": 100, "hash_ids": [0, 1, 5, 7, 8]},
    ]
    trace.write_text("".join(f"{json.dumps(record)}\n" for record in rows))
    ends = list(chats(trace))
    assert [round(end.away_s, 3) for end in ends] == [27.5, inf, 57.5, inf]
    assert [end.kind.bucket for end in ends] == [0, 0, 1, 2]
    assert [round(end.known_s, 3) for end in ends] == [87.5, 86.5, 57.5, -2.5]


def test_agents_come_back_after_their_think_time(tmp_path: Path) -> None:
    trace = tmp_path / "agents.jsonl"
    requests = [
        {"t": 0.0, "type": "n", "in": 640, "out": 10, "hash_ids": [[1, 10]], "stop": "tool_use", "think_time": 0.0},
        {"t": 9.0, "type": "n", "in": 700, "out": 10, "hash_ids": [[1, 10]], "stop": "end_turn", "think_time": 4.0},
    ]
    trace.write_text(json.dumps({"id": "one", "block_size": 64, "requests": requests}) + "\n")
    first, last = agents(trace, Random(1))
    assert (first.away_s, last.away_s) == (4.0, inf)
    assert first.kind == ReturnClass.of("tool_calls", 1, from_tool=False)
    assert last.kind == ReturnClass.of("stop", 2, from_tool=True)


def test_what_the_trace_is_too_short_to_tell_is_not_asked() -> None:
    ends = [TurnEnd(number * 100.0, number, CHAT, 20.0, 70.0) for number in range(10)]
    first, second = cases(ends)
    assert {case.asked for case in (*first, *second)} == {(0.0, 60.0), (10.0, 60.0)}
    assert (len(first), len(second)) == (10, 10)
    assert all(case.came for case in second)
    assert max(IDLE_S) + max(WITHIN_S) > 70


def test_a_constant_that_is_always_right_has_the_score_of_nothing() -> None:
    ends = [TurnEnd(number * 1_000.0, number, CHAT, 5.0, inf) for number in range(200)]
    name, questions, came, _, learnt, constant, *_ = row("all", *cases(ends))
    assert (name, questions, came, constant) == ("all", "200", "1.000", "0.0000")
    assert float(learnt) < 0.02
