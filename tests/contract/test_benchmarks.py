"""The benchmarks run and count right. Nothing here looks at how long anything took."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.chats import Content, read_events
from benchmarks.load import Answer, Connection, chat_body, connect, post
from benchmarks.path import Case, DataPath, requests
from benchmarks.peers import absent
from benchmarks.plateau import grown_bytes
from benchmarks.redis_server import redis_server
from benchmarks.report import ratio_to_lowest, spread
from benchmarks.rig import backends, port_of
from benchmarks.sessions import Session
from benchmarks.shared_commands import per_request
from benchmarks.usage_backend import usage_backends
from tests.contract.pages import ROOT

EVENT = b'data: {"choices":[{"delta":{"content":"word"}}]}\n\n'


def run(script: str, tmp_path: Path, *arguments: str) -> tuple[str, dict[str, list[dict[str, float]]]]:
    """What a benchmark printed, and the figures it wrote."""
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", f"benchmarks.{script}", "--json", str(figures), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=55, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(figures.read_text())


def run_with_peers(script: str, tmp_path: Path, *arguments: str) -> tuple[str, dict[str, list[dict[str, float]]]]:
    """As `run`, where other routers could take part: none is installed there."""
    return run(script, tmp_path, "--peers-dir", str(tmp_path), *arguments)


def test_the_path_benchmark_runs_every_step_of_a_request(tmp_path: Path) -> None:
    short = ["--bodies", "1000", "9000", "--replicas", "3", "--rounds", "1", "--count", "4"]
    printed, figures = run("path", tmp_path, *short)
    assert list(figures) == ["JSON, 1,000 bytes, 3 replicas", "JSON, 9,000 bytes, 3 replicas"]
    assert all(one["cpu_s"] > 0 for rows in figures.values() for one in rows)
    assert "CPU µs a request" in printed


def test_the_plateau_benchmark_reads_memory_until_the_last_turn(tmp_path: Path) -> None:
    printed, figures = run("plateau", tmp_path, "--turns", "400", "--connections", "4")
    read = figures["warmroute"]
    assert read
    assert read[-1]["turns"] <= 400 + 4 * 20
    assert all(one["bytes"] > 20e6 for one in read)
    assert "grown in the last quarter" in printed


def test_growth_is_that_of_the_last_quarter() -> None:
    assert grown_bytes([(number, 100.0 * number) for number in range(40)]) == 1_000.0
    assert grown_bytes([(number, 7.0) for number in range(40)]) == 0.0


async def test_the_path_benchmark_leaves_finished_requests_behind() -> None:
    case = Case(2_000, 2, streamed=True, log=False)
    path = DataPath(case)
    for request in requests(case, 5, 0):
        path.ask(request)
    plane = path.house.plane
    plane.later.flush()
    assert not plane.active
    assert sum(replica.ledger.streams for replica in plane.fleet) == 0
    assert sum(len(replica.mirror) for replica in plane.fleet) > 5
    plane.close()



def test_relay_measures_and_loses_nothing(tmp_path: Path) -> None:
    routers = "warmroute,smg:cache_aware,direct"
    short = ("--rounds", "1", "--scale", "0.02", "--latency-s", "0.5")
    printed, figures = run_with_peers("relay", tmp_path, "--routers", routers, *short)

    assert "absent: smg:cache_aware: smg is not installed" in printed
    assert list(figures) == ["warmroute", "direct"]
    for name, (one,) in figures.items():
        assert name in printed
        assert one["stream_requests"] == 13
        assert one["stream_events"] == 13 * 65
        assert one["json_requests"] > 300
        assert one["stream_errors"] == one["json_errors"] == one["latency_errors"] == 0
    assert "CPU of the router per streamed request" in printed
    assert "Latency added over direct" in printed
    assert {"stream_cpu_s", "json_cpu_s", "json_added_p99_s", "ttft_added_p50_s"} <= figures["warmroute"][0].keys()
    assert "json_cpu_s" not in figures["direct"][0]


def test_relay_memory(tmp_path: Path) -> None:
    printed, figures = run_with_peers(
        "relay", tmp_path, "--memory", "--idle-streams", "20", "--routers", "warmroute", "--rounds", "1"
    )

    [one] = figures["warmroute"]
    assert one["streams"] == 20
    assert one["memory_errors"] == 0
    assert one["start_bytes"] > 1e6
    assert "Resident memory" in printed


def test_relay_big_body(tmp_path: Path) -> None:
    printed, figures = run_with_peers("relay", tmp_path, "--big-body", "--routers", "warmroute", "--rounds", "1")

    [one] = figures["warmroute"]
    assert one["events"] > 0
    assert one["big_body_errors"] == 0
    assert "8 MiB" in printed


def test_shared_hits_with_and_without_redis(tmp_path: Path) -> None:
    short = ("--minutes", "0.5", "--sessions-per-s", "2", "--time-scale", "20")
    printed, figures = run("shared", tmp_path, "--routers", "2", "--replicas", "2", "--kv-tokens", "60000", *short)

    assert list(figures) == ["1 router", "2 routers, Redis", "2 routers, no Redis"]
    for name, (one,) in figures.items():
        assert one["requests"] > 10
        assert one["errors"] == 0
        assert 0 < one["hit_ratio"] < 1
        assert one["of_one_ratio"] == one["hit_ratio"] / figures["1 router"][0]["hit_ratio"]
        assert (one["least_share_ratio"] == 1) == (name == "1 router")
    assert figures["2 routers, Redis"][0]["least_share_ratio"] > 0.2
    assert "Whether the machine kept up" in printed


def test_shared_latency_of_every_kind_of_request(tmp_path: Path) -> None:
    printed, figures = run("shared", tmp_path, "--latency", "--seconds", "0.5")

    known, new, found, stopped = "known session", "new session", "another router's session", ", Redis stopped"
    assert list(figures) == [known, known + stopped, new, found, new + stopped]
    # What the rows are about. (A read that came too late makes a session new, so no more is said of that row.)
    assert figures[known][0]["local_ratio"] == figures[known + stopped][0]["local_ratio"] == 1
    assert figures[new][0]["none_ratio"] == figures[new + stopped][0]["none_ratio"] == 1
    assert figures[found][0]["redis_ratio"] > 0
    for (one,) in figures.values():
        assert one["requests"] == 25
        assert one["errors"] == 0
        assert {"p50_plain_s", "p50_added_s", "p99_plain_s", "p99_added_s"} <= one.keys()
    assert "Latency added by --redis" in printed


def test_shared_commands_are_told_apart(tmp_path: Path) -> None:
    printed, figures = run("shared", tmp_path, "--commands", "--seconds", "1", "--rates", "60")

    [one] = figures["60 requests/s"]
    assert one["requests"] > 20
    assert one["errors"] == 0
    assert one["publish_sent"] > 0
    assert one["evalsha_sent"] > 0
    assert one["in_scripts"] > 0
    parts = sum(value for key, value in one.items() if key.endswith("_sent"))
    assert one["sent"] == pytest.approx(parts)
    assert "Redis commands per request" in printed


def test_shared_memory_of_a_turn(tmp_path: Path) -> None:
    printed, figures = run("shared", tmp_path, "--memory", "--turns", "100")

    by_prompt, by_header = figures["sessions by their prompts"][0], figures["with x-session-id"][0]
    for one in (by_prompt, by_header):
        assert (one["sessions"], one["turns"], one["errors"]) == (20, 100, 0)
        assert one["keys"] >= 100
        assert one["bytes_per_turn"] == one["used_bytes"] / 100 > 0
    assert by_header["keys"] == by_prompt["keys"] + 20
    assert "GB for a million sessions" in printed


def test_shared_warm_counts_every_follow_up(tmp_path: Path) -> None:
    short = ("--sessions", "12", "--replicas", "2", "--time-scale", "16", "--concurrency", "3")
    printed, figures = run("shared", tmp_path, "--warm", *short)

    [other], [again] = figures["other router, at once"], figures["new routers, after a kill"]
    assert (other["turns"], again["turns"]) == (24, 12)
    for one in (other, again):
        assert one["errors"] == 0
        assert sum(count for key, count in one.items() if key.startswith("reason_")) == one["turns"]
        assert 0 <= one["warm_ratio"] <= one["home_ratio"] <= 1
    assert "Next turns through another router" in printed


def test_commands_of_scripts_are_seen() -> None:
    with redis_server() as redis, ThreadPoolExecutor() as threads:
        before = redis.calls()
        watching = threads.submit(redis.scripted, 0.3)
        while not watching.done():
            redis.client.eval('redis.call("set", KEYS[1], "x"); return redis.call("get", KEYS[1])', 1, "key")
            redis.client.get("key")

        assert watching.result() == {"set"}
        calls = redis.calls() - before
        assert calls["set"] == calls["eval"] > 0
        assert redis.keys() == 1


def test_commands_per_request() -> None:
    calls = Counter({"publish": 20, "evalsha": 10, "unsubscribe": 5, "get": 30})

    figures = per_request(calls, {"get", "set"}, 10)

    assert [figures[f"{name}_sent"] for name in ("publish", "evalsha", "mget", "other")] == [2, 1, 0, 0.5]
    assert (figures["sent"], figures["in_scripts"]) == (3.5, 3)


async def test_backend_with_usage_counts_the_prompt() -> None:
    session, parts = Session("a", "system"), list[bytes]()
    with usage_backends(1) as urls:
        connection = await connect(port_of(urls[0]))
        plain = await connection.start(session.next_request())
        streamed = await connection.start(request := session.next_request(3), parts.append)
        await connection.close()

    content = read_events(b"".join(parts))
    assert plain.ok(False)
    assert (streamed.events, streamed.ok(True)) == (5, True)
    assert content.answer_tokens == 3
    assert content.prompt_tokens == len(request.partition(b"\r\n\r\n")[2]) // 4


class Sink(asyncio.Transport):
    """The far end of a connection whose reads the test hands over itself."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass


async def fed(pieces: Sequence[bytes]) -> Answer:
    """The answer a client connection makes of these reads."""
    connection = Connection()
    connection.connection_made(Sink())
    answered = connection.start(b"")
    for piece in pieces:
        connection.data_received(piece)
    if not answered.done():
        connection.connection_lost(None)
    return await answered


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(
    b"%x\r\n%s\r\n" % (len(part), part) for part in (EVENT, EVENT, b"data: [DONE]\n\n")
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 1000])
async def test_client_counts_events_however_they_are_cut(size: int) -> None:
    whole = CHUNKED + b"0\r\n\r\n"
    answer = await fed([whole[at : at + size] for at in range(0, len(whole), size)])

    assert (answer.events, answer.payload_bytes) == (3, 2 * len(EVENT) + 14)
    assert answer.ok(streamed=True)


@pytest.mark.parametrize(
    "lost",
    [
        CHUNKED,  # cut before the last chunk
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 503 Busy\r\ncontent-length: 2\r\n\r\n{}",
    ],
)
async def test_client_counts_a_lost_answer_as_an_error(lost: bytes) -> None:
    assert not (await fed([lost])).ok(streamed=False)


async def test_client_takes_an_end_without_done_as_an_error_of_a_stream() -> None:
    answer = await fed([CHUNKED.replace(b"[DONE]", b"[GONE]") + b"0\r\n\r\n"])

    assert answer.ok(streamed=False)
    assert not answer.ok(streamed=True)


async def test_backend_answers_in_turn_on_one_connection() -> None:
    with backends("--delay-ms", "0") as urls:
        connection = await connect(port_of(urls[0]))
        streamed = await connection.start(post(chat_body("hello", True, max_tokens=3)))
        plain = await connection.start(post(chat_body("hello", False)))
        await connection.close()

    assert (streamed.events, streamed.ok(True)) == (4, True)
    assert plain.ok(False)


def test_ratio_is_taken_within_a_round() -> None:
    results = {"own": [{"x": 2.0}, {"x": 30.0}], "a": [{"x": 4.0}, {"x": 30.0}], "b": [{"x": 8.0}, {"x": 20.0}]}

    assert ratio_to_lowest(results, "own", ["a", "b"], "x") == 1.0  # the median of 2/4 and 30/20
    assert ratio_to_lowest(results, "own", ["absent"], "x") is None


def test_spread_is_short_when_all_are_equal() -> None:
    assert spread([2.0, 3.0, 10.0]) == "3 (2..10)"
    assert spread([5.0, 5.0]) == "5"
    assert spread([]) == "-"


def test_events_give_the_text_and_the_engines_count() -> None:
    counts = b'"prompt_tokens":40,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":32}'
    usage = b'data: {"choices":[],"usage":{%s}}\n\n' % counts

    assert read_events(EVENT * 2 + b": ping\n\n" + usage + b"data: [DONE]\n\n") == Content("wordword", 40, 32, 2)
    assert read_events(EVENT) == Content("word")


def test_absent_says_why(tmp_path: Path) -> None:
    assert absent("direct", tmp_path) is None
    assert absent("warmroute", tmp_path) is None
    assert absent("vllm-router:cache_aware", tmp_path) == "vllm-router is not installed"
    assert "unknown router" in str(absent("haproxy", tmp_path))
