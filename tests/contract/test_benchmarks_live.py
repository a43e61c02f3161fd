"""benchmarks/live.py: its workloads say what their traces say, and run to the end."""

from __future__ import annotations

import argparse
import gzip
import json
from array import array
from collections.abc import Sequence
from os.path import commonprefix
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.chats import Session
from benchmarks.live import busy, of_better_rival, row
from benchmarks.live_workloads import (
    EXCERPT,
    KINDS,
    conversations,
    ends_of,
    messages_of,
    title,
    turns_of,
    with_defaults,
)
from router.replay.traces.types import TraceRequest, runs_of
from router.sim.tokenizer import Tokenizer
from router.sim.workload import ChatTurn
from tests.contract.test_benchmarks import run_with_peers

SIZE = 16
TINY_FLEET = ("--replicas", "2", "--routers", "warmroute", "--time-scale", "8")

blocks = st.lists(st.integers(0, (1 << 63) - 1), max_size=6)
sizes = st.sampled_from([16, 512, 2_048])  # 64 blocks a message, two, one


def recorded(hashes: Sequence[int], rest_tokens: int = 0, size: int = SIZE) -> TraceRequest:
    return TraceRequest("", 0.0, None, size * len(hashes) + rest_tokens, 5, "stop", size, runs_of(hashes))


def ids_of(request: TraceRequest, salt: int = 0, serial: int = 0) -> array[int]:
    return Tokenizer().render_chat(messages_of(request, salt, serial))


def same(one: array[int], other: array[int]) -> int:
    """Leading tokens that are equal."""
    return len(commonprefix([one.tolist(), other.tolist()]))


def options(**more: object) -> argparse.Namespace:
    plain = {"minutes": None, "kv_tokens": None, "replicas": 8, "sessions_per_s": 5.0, "agents": 3}
    return argparse.Namespace(**{**plain, "conversation": EXCERPT, "coding": None, **more})


@given(blocks, st.integers(8, SIZE - 1), sizes)
def test_a_prompt_has_the_recorded_tokens(hashes: list[int], rest_tokens: int, size: int) -> None:
    assert len(ids_of(recorded(hashes, rest_tokens, size))) == size * len(hashes) + rest_tokens


@pytest.mark.parametrize(
    ("hashes", "off"),
    [
        ([], [8, 7, 6, 5, 4, 3, 2, 1, 0]),  # the shortest text has three tokens, three of markers, two of the answer's
        ([1], [3, 5, 4, 3, 2, 1, 0, 0, 0]),  # it goes on in the block's message, or is left out
        ([1, 2], [2, 1, 0, 5, 4, 3, 2, 1, 0]),  # a message of its own, or left out
    ],
)
def test_a_short_rest_is_at_most_eight_tokens_off(hashes: list[int], off: list[int]) -> None:
    size = 512
    requests = [recorded(hashes, rest, size) for rest in range(9)]

    assert [len(ids_of(request)) - request.prompt_tokens for request in requests] == off


@given(blocks, blocks, blocks, sizes)
def test_text_is_equal_as_far_as_the_trace_says(shared: list[int], one: list[int], other: list[int], size: int) -> None:
    first, second = recorded([*shared, *one], 9, size), recorded([*shared, *other], 9, size)
    equal = len(commonprefix([first.block_hashes, second.block_hashes]))

    assert same(ids_of(first, serial=1), ids_of(second, serial=2)) // size == equal


@given(blocks, sizes)
def test_what_follows_the_last_full_block_is_nobody_elses(hashes: list[int], size: int) -> None:
    request = recorded(hashes, 9, size)

    assert ids_of(request, serial=1) == ids_of(request, serial=1)
    assert same(ids_of(request, serial=1), ids_of(request, serial=2)) < size * len(hashes) + 9


def test_clients_of_different_salt_share_nothing() -> None:
    request = recorded([1, 2, 3])

    assert same(ids_of(request, salt=1), ids_of(request, salt=2)) < SIZE


def test_blocks_that_the_answer_filled_are_no_part_of_the_prompt() -> None:
    request = TraceRequest("", 0.0, None, 2 * SIZE, 5, "stop", SIZE, runs_of([1, 2, 3]))

    assert ids_of(request)[:-2] == ids_of(recorded([1, 2]))[:-2]
    assert len(ids_of(request)) < 3 * SIZE


def test_a_message_holds_a_thousand_tokens_of_blocks() -> None:
    assert [len(messages_of(recorded(range(64 * n)), 0, 0)) for n in (1, 2, 3)] == [1, 2, 3]


@given(blocks, blocks, st.sampled_from([16, 512]))
def test_the_next_turn_has_the_messages_of_the_one_before(history: list[int], more: list[int], size: int) -> None:
    first, second = recorded(history, 3, size), recorded([*history, *more], 5, size)
    grouped = max(1, 1_024 // size)
    ends = ends_of(first.block_hashes, (), (), grouped)
    later = ends_of(second.block_hashes, first.block_hashes, ends, grouped)

    before, after = turns_of(first, 7, ends), turns_of(second, 7, later)
    assert after[: len(before)] == before
    assert len(Tokenizer().render_chat(after, None, False)) == size * len(second.block_hashes)


def test_an_edited_turn_has_the_messages_before_the_edit() -> None:
    ends = ends_of(range(10), (), (), 4)
    assert ends == [4, 8, 10]
    assert ends_of([*range(9), 99, 100, 101], range(10), ends, 4) == [4, 8, 12]
    assert ends_of(range(9), range(10), ends, 4) == [4, 8, 9]


def test_a_block_that_is_too_small_for_its_name_is_refused() -> None:
    with pytest.raises(ValueError, match="6 at least"):
        messages_of(TraceRequest("", 0.0, None, 4, 1, "stop", 4, ((1, 1),)), 0, 0)


def test_conversations_are_found_by_their_last_blocks() -> None:
    prompts = [[0, 1], [0, 2], [0, 1, 3], [0, 1, 3, 4], [0, 2, 5], [0], [0, 6], [0, 1, 7]]

    assert conversations([recorded(prompt) for prompt in prompts]) == [0, 1, 0, 0, 1, 5, 6, 0]


def turns(session: Session) -> list[ChatTurn]:
    found = list[ChatTurn]()
    while (turn := session.next_turn("whatever")) is not None and len(found) < 4:
        found.append(turn)
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_the_conversation_trace_comes_by_its_time_stamps(seed: int) -> None:
    made = KINDS["conversation"].make(options(minutes=1.0), seed)
    sessions, again = list(made.sessions()), list(KINDS["conversation"].make(options(minutes=1.0), seed).sessions())

    starts_s = [session.starts_s for session in sessions]
    assert starts_s == sorted(starts_s) == [session.starts_s for session in again]
    assert 0 <= starts_s[0] < 10
    assert 50 < starts_s[-1] < made.duration_s == 60
    assert [turns(session) for session in sessions[:3]] == [turns(session) for session in again[:3]]


def test_another_seed_is_another_part_of_the_trace() -> None:
    first, second = (
        [turns(session) for session in KINDS["conversation"].make(options(minutes=0.1), seed).sessions()]
        for seed in (1, 2)
    )

    assert first != second


def test_a_trace_is_not_longer_than_it_is() -> None:
    assert 890 < KINDS["conversation"].make(options(minutes=60.0), 1).duration_s < 901


@pytest.fixture
def coding(tmp_path: Path) -> Path:
    """Recorded agents: one session of four requests, each 256 tokens longer than the one before."""
    requests = [
        {"type": "s", "t": 0, "in": 256 * n, "out": 20, "hash_ids": [[100, 4 * n]], "stop": "tool_use", "think_time": 2}
        for n in range(1, 5)
    ]
    path = tmp_path / "agents.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps({"id": "a", "block_size": 64, "requests": requests}).encode()))
    return path


def test_agents_go_on_as_long_as_there_is_time(coding: Path) -> None:
    made = KINDS["agents"].make(options(minutes=1.0, kv_tokens=60_000, coding=coding), 1)
    sessions = list(made.sessions())
    taken = [turns(session) for session in sessions]

    assert len(sessions) == 3
    assert all(0 <= session.starts_s <= 15 for session in sessions)
    assert all([turn.think_s for turn in one] == [0, 2, 2, 2] for one in taken)
    assert {turn.session_id for turn in taken[0]} == {"agent-100000-a"}
    # Two in the same recorded session have nothing in common.
    assert not {m["content"] for m in taken[0][0].messages} & {m["content"] for m in taken[1][0].messages}


def test_each_workload_has_its_own_defaults() -> None:
    own = {kind: with_defaults(kind, options()) for kind in KINDS}

    assert {kind: (one.minutes, one.kv_tokens) for kind, one in own.items()} == {
        "chat": (8, 300_000),
        "conversation": (30, 1_250_000),
        "agents": (20, 1_000_000),
    }
    assert with_defaults("chat", options(minutes=2.0, kv_tokens=5)).minutes == 2
    assert title("agents", own["agents"]) == "agents: 3 agents live, 8 replicas of 1,000,000 tokens, 20 minutes"


def test_rows_are_compared_with_the_better_rival_of_their_workload() -> None:
    p95_s = {"warmroute": 1.0, "smg:cache_aware": 4.0, "sglang-router:cache_aware": 2.0}
    results = {row("chat", name): [{"ttft_p95_s": value}] for name, value in p95_s.items()}
    results |= {row("agents", name): [{"ttft_p95_s": value**2}] for name, value in p95_s.items()}

    assert of_better_rival(results, "chat warmroute", "ttft_p95_s") == 0.5
    assert of_better_rival(results, "agents warmroute", "ttft_p95_s") == 0.25
    assert of_better_rival(results, "agents smg:cache_aware", "ttft_p95_s") == 4


def test_processes_that_had_too_much_to_do_are_named() -> None:
    calm, loaded = {"router_cpu_ratio": 0.7, "client_cpu_ratio": 0.1}, {"fleet_cpu_ratio": 0.71}

    assert busy([calm, {"errors": 1.0}]) == []
    assert busy([calm, loaded]) == ["fleet"]


def test_live_drives_chats_to_the_end(tmp_path: Path) -> None:
    short = ("--minutes", "0.6", "--sessions-per-s", "2", "--kv-tokens", "60000", *TINY_FLEET)
    printed, figures = run_with_peers("live", tmp_path, "--workloads", "chat,agents", *short)

    [one] = figures["chat warmroute"]
    assert one["requests"] > 20
    assert one["errors"] == 0
    assert 0 < one["hit_ratio"] < 1
    assert 0 < one["ttft_p50_s"] <= one["ttft_p95_s"] <= one["ttft_p99_s"]
    assert 1 <= one["imbalance"] <= 2
    assert "Whether the machine kept up" in printed
    assert "absent: agents: give their trace with --coding FILE" in printed


def test_live_drives_traces_to_the_end(tmp_path: Path, coding: Path) -> None:
    short = ("--minutes", "0.4", "--kv-tokens", "300000", "--agents", "3", "--coding", str(coding), *TINY_FLEET)
    printed, figures = run_with_peers("live", tmp_path, "--workloads", "conversation,agents", *short)

    [conversation], [agents] = figures["conversation warmroute"], figures["agents warmroute"]
    for one in (conversation, agents):
        assert one["requests"] > 5
        assert one["errors"] == 0
        assert 0 < one["hit_ratio"] < 1
    assert "conversation trace, 2 replicas of 300,000 tokens, 0.4 minutes" in printed
