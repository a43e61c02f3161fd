"""benchmarks/soak.py and streams.py run, and count what they say. Nothing here looks at how long anything took."""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.backend import EVENT, STREAM_END, STREAM_HEAD
from benchmarks.soak import Outcome as Soaked
from benchmarks.soak import left_over, problems_of, sorted_failures
from benchmarks.soak_load import Asked, hit_ratio, sessions_of
from benchmarks.soak_watch import BOUNDED, MB, NAMES, RSS, growth, log_tally, read, slope_per_s, unbounded_bytes
from benchmarks.streams import add_delays_over_direct
from benchmarks.streams_generator import CHUNK_END, CHUNK_START, Client, Generator
from benchmarks.streams_workers import LOADS, add_bounds, measure
from tests.contract.pages import ROOT

KINDS = {
    "replica killed", "replica frozen", "replica drained", "replica removed", "redis killed", "redis frozen",
    "redis flushed", "clients left", "slow readers", "hostile bytes", "reload",
}  # fmt: skip


def bench(module: str, *arguments: str) -> str:
    """What a benchmark printed that found nothing wrong."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(120)
def test_a_short_soak_has_each_fault_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    samples, figures = tmp_path / "samples.jsonl", tmp_path / "figures.json"
    fast = ("--minutes", "0.15", "--no-calm", "--hold-s", "0.3", "--gap-s", "0.1", "--every-s", "1")
    small = ("--chats-per-s", "3", "--replicas", "3", "--flags", f"--record {tmp_path / 'recorded.jsonl'} --touch")
    printed = bench("soak", *fast, *small, "--samples", str(samples), "--json", str(figures))

    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    routers = {line["admin_port"] for line in lines if line["kind"] == "reading"}
    assert {line["what"] for line in lines if line["kind"] == "fault"} == KINDS
    assert len(routers) == 2
    found = json.loads(figures.read_text())
    [whole] = found["with faults"]
    assert whole["requests"] > 20
    assert 0 < whole["hit_ratio"] < 1
    assert whole["failed"] == whole["exceptions"] == whole["own_5xx"] == whole["cut"] == 0
    assert all(whole[kind] == 1 for kind in KINDS)
    for port in routers:
        [router] = found[f"router {port}"]
        assert router["left"] == 0
        assert router["most_bytes"] >= router["end_bytes"] > 1e7
    assert "nothing was left over" in printed


def test_streams_are_counted_to_the_last_event(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    short = ("--streams", "30", "--seconds", "0.5", "--warm-up-s", "0.2", "--routers", "direct,warmroute")
    printed = bench("streams", *short, "--json", str(figures))

    found = json.loads(figures.read_text())
    assert list(found) == ["30 direct", "30 warmroute"]
    for (one,) in found.values():
        assert one["streams"] == 30
        assert one["events"] > 100
        assert one["stream_errors"] == one["lost_errors"] == 0
    assert {"added_p99_s", "added_max_s", "rss_bytes", "pss_bytes"} <= found["30 warmroute"][0].keys()
    assert "30 open streams" in printed


def test_two_workers_share_the_requests() -> None:
    two = measure(2, argparse.Namespace(requests_per_s=50.0, seconds=0.5, scale=0.05))

    assert two["errors"] == 0
    assert (two["equal_requests"], two["full_requests"], two["stream_requests"]) == (25, 32 * 8, 32)
    assert 0.3 < two["full_busiest_ratio"] <= 1
    assert two["full_cpu_s"] > 0


def test_a_bound_is_what_the_busiest_worker_leaves() -> None:
    def cost(own_cpu_s: float, busiest_ratio: float, workers: int) -> dict[str, float]:
        one = {"own_cpu_s": own_cpu_s, "busiest_ratio": busiest_ratio, "workers": workers}
        return {f"{load}_{key}": value for load in LOADS for key, value in one.items()}

    alone, two = [cost(0.001, 1.0, 1) | {"idle_cpu_ratio": 0.04}], [cost(0.00125, 0.8, 2) | {"idle_cpu_ratio": 0.08}]
    add_bounds({"--workers 1": alone, "--workers 2": two})
    assert alone[0]["full_bound"] == 1.0
    assert two[0]["full_bound"] == pytest.approx(1.0)

    even = [cost(0.001, 0.5, 2) | {"idle_cpu_ratio": 0.56}]
    add_bounds({"--workers 1": alone, "--workers 2": even})
    assert even[0]["full_bound"] == pytest.approx(2 * 0.72 / 0.96)


def test_added_delay_is_taken_within_a_round() -> None:
    results = {"direct": [{"delay_p99_s": 1.0}, {"delay_p99_s": 2.0}]}
    results["a"] = [{"delay_p99_s": 1.5}, {"start_errors": 1.0}]
    add_delays_over_direct(results)

    assert results["a"] == [{"delay_p99_s": 1.5, "added_p99_s": 0.5}, {"start_errors": 1}]
    assert results["direct"][0] == {"delay_p99_s": 1.0}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 199, 1000, 10_000])
def test_a_client_of_streams_counts_each_event_once_however_they_are_cut(size: int) -> None:
    stamps = [1_000, 2_000, 3_000, 4_000]
    events = b"".join(b"%b%020d%b" % (CHUNK_START, stamp, CHUNK_END) for stamp in stamps)
    whole, delays = STREAM_HEAD + events + STREAM_END, list[int]()
    with Pair() as (client, _):
        client.note = delays.append
        for at in range(0, len(whole), size):
            client.take(whole[at : at + size], 10_000)

        assert (client.events, client.done) == (4, True)
    assert delays == [9_000, 8_000, 7_000, 6_000]
    assert CHUNK_START.partition(b"\r\n")[2] + b"%020d" % 5 + CHUNK_END[:-2] == EVENT % 5


class Pair:
    """A client of streams, and the other end of its connection."""

    def __enter__(self) -> tuple[Client, socket.socket]:
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        return Client(self.near, lambda _: None), self.far

    def __exit__(self, *_: object) -> None:
        self.near.close()
        self.far.close()


def test_a_stream_that_is_cut_has_failed() -> None:
    with Pair() as (client, far):
        far.send(STREAM_HEAD + CHUNK_START)
        assert client.readable(ended=False)
        far.close()
        assert not client.readable(ended=True)
        assert (client.failed, client.events) == (True, 0)


def test_streams_get_their_events_and_their_end_without_a_router() -> None:
    generator = Generator(engines=2)
    port = int(generator.urls[0].rsplit(":", 1)[1])
    opened = generator.open(port, 5, body_bytes=100)
    generator.run(0.3, events_per_s=100)
    cut = generator.end()
    generator.close()

    assert (opened, cut) == (5, 0)
    assert generator.received == generator.sent > 5
    assert min(generator.delays_ns) > 0


def test_a_slope_is_that_of_the_straight_line() -> None:
    assert slope_per_s([(0.0, 5.0), (10.0, 25.0), (20.0, 45.0)]) == 2.0
    assert slope_per_s([(0.0, 0.0), (1.0, 3.0), (2.0, 0.0)]) == 0.0
    assert slope_per_s([(1.0, 7.0)]) == slope_per_s([]) == 0.0


def reading(rss_bytes: float, **more: float) -> dict[str, float]:
    return {**dict.fromkeys(NAMES, 0.0), RSS: rss_bytes, "warmroute_config_reload_success": 1.0, **more}


def test_growth_leaves_out_what_is_bounded_and_the_warm_up() -> None:
    readings = [(0.0, reading(0.0))]
    readings += [(1_800.0 * n, reading((100 + 5 * n) * MB, **{BOUNDED[0]: 4 * n * MB})) for n in (1, 2, 3)]

    assert unbounded_bytes(readings[1][1]) == 101 * MB
    assert growth(readings, 1_000.0, 9_000.0) == {"grown_mb_per_h": pytest.approx(2.0), "allowed_mb_per_h": 8.0}
    assert growth(readings, 1_000.0, 2_000.0) == {"grown_mb_per_h": 0.0, "allowed_mb_per_h": float("inf")}


def test_a_page_of_metrics_is_summed_over_its_labels() -> None:
    page = (
        "# HELP process_open_fds x\nprocess_open_fds 7.0\n"
        'warmroute_inflight_requests{replica="a"} 2.0\nwarmroute_inflight_requests{replica="b"} 3.0\n'
        'warmroute_inflight_requests_created{replica="b"} 1.0\n'
        'warmroute_missed_tokens_total{cause="restarted"} 1e+03\n'
    )
    found = read(page)

    assert (found["process_open_fds"], found["warmroute_inflight_requests"]) == (7, 5)
    assert found["missed:restarted"] == 1_000


def test_what_is_left_over_is_named() -> None:
    start = {1: reading(0.0, process_open_fds=20.0, warmroute_replica_up=2.0)}

    assert left_over(start, {1: reading(0.0, process_open_fds=26.0, warmroute_replica_up=2.0)}, 2) == []
    assert left_over(start, {}, 2) == ["no router answers"]
    assert left_over(
        start, {1: reading(0.0, process_open_fds=27.0, warmroute_replica_up=1.0, warmroute_queued_requests=3.0)}, 2
    ) == [
        "warmroute_queued_requests of 1 is 3",
        "process_open_fds of 1 was 20 and is 27",
        "1 of 2 replicas are up for 1",
    ]


def asked(status: int, problem: str, replica_id: str = "r", began_s: float = 0.0, ended_s: float = 10.0) -> Asked:
    return Asked(began_s, began_s, ended_s, status, problem, replica_id, 100, 50)


def test_only_a_killed_replica_may_end_an_answer() -> None:
    died = "not the whole answer"
    of = [
        asked(200, ""), asked(200, died), asked(200, died, began_s=6.0), asked(200, died, ended_s=1.0),
        asked(200, died, "other"), asked(503, "refused", ""), asked(429, "refused"),
    ]  # fmt: skip

    failures, deaths = sorted_failures(of, [("r", 5.0)])

    assert deaths == 1
    assert failures == {f"200 {died}": 3, "503 refused": 1}


def test_a_hit_rate_is_of_what_was_asked_in_a_time() -> None:
    of = [asked(200, "", began_s=at_s) for at_s in (0.0, 1.0, 2.0)]
    of[1].cached_tokens = 100

    assert hit_ratio(of, 1.0, 2.0) == 1.0
    assert hit_ratio(of, 0.0, 2.0) == 0.75
    assert hit_ratio(of, 3.0, 4.0) == 0.0


def test_a_longer_run_begins_with_the_sessions_of_a_shorter_one() -> None:
    short, long = (sessions_of(2.0, 0.1, duration_s, seed=3) for duration_s in (60.0, 240.0))
    early = [session for session in long if session.starts_s < 60]

    assert early == short
    assert {session.session_id.partition("-")[0] for session in long} == {"chat", "agent"}  # type: ignore[attr-defined]


def test_the_log_is_counted_without_its_numbers(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        '{"event":"request_finished","request_id":"1"}\nreplica r-0123abcd (http://127.0.0.1:1) is out: died\n'
        "replica r-99999999 (http://127.0.0.1:2) is out: died\nTraceback (most recent call last):\n"
    )
    said, exceptions = log_tally(log)

    assert said["replica # (http://#.#:#) is out: died"] == 2
    assert exceptions == 1


def test_a_verdict_names_each_thing_that_is_wrong() -> None:
    good = {"exceptions": 0.0, "own_5xx": 0.0, "cut": 0.0, "same_time_hit_ratio": 0.70}
    calm = Soaked([], {**good, "same_time_hit_ratio": 0.715}, {})
    fine = Soaked([], good, {"router 1": {"grown_mb_per_h": 3.0, "allowed_mb_per_h": 3.5}})
    assert problems_of(fine, calm) == []

    bad = Soaked([], {**good, "exceptions": 1.0}, {"router 1": {"grown_mb_per_h": 4.0, "allowed_mb_per_h": 3.5}})
    bad.failures["503 refused"] = 2
    calm.figures["same_time_hit_ratio"] = 0.725
    assert problems_of(bad, calm) == [
        "2 requests failed: 503 refused",
        "router 1 grows by 4.0 MB an hour",
        "exceptions: 1",
        "the hit rate is 2.5 points below that of the calm run",
    ]
