"""What is settled where the user left it open: sizes from a recording, minutes and warm-up by the kind of traffic."""

import json
from array import array
from base64 import b64encode
from pathlib import Path

import pytest

from router.app.replay.asked import DEFAULT_POLICIES, Asked, policies_of, sweep_of
from router.app.replay.numbers import count, counts, number
from router.app.replay.workloads import order_of
from router.replay.chats import Chats
from router.replay.contenders import names
from router.replay.demand import Agents, ClosedLoop, OpenLoop
from router.replay.profiles import PROFILES
from tests.app.replay.commands import EXCERPT

HASHES = b64encode(array("Q", [7 << 50]).tobytes()).decode()


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    lines: list[dict[str, object]] = [
        {"warmroute_recording": 1, "block_tokens": 32, "kv_tokens": 64_000, "replicas": 3}
    ]
    lines += [
        {"timestamp": at_ms, "input_length": 40, "output_length": 1, "hash_ids": [1], "session": "a", "hashes": HASHES,
         "ends": [40], "total_s": 2.0}
        for at_ms in (0, 120_000)
    ]  # fmt: skip
    path = tmp_path / "recording.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


@pytest.fixture
def coding(tmp_path: Path) -> Path:
    requests = [
        {"t": 0.0, "type": "n", "in": tokens, "out": 1, "hash_ids": [[1, 3]], "stop": ""} for tokens in (200, 200_000)
    ]
    path = tmp_path / "coding.jsonl"
    path.write_text(json.dumps({"id": "a", "block_size": 64, "requests": requests}))
    return path


def test_a_trace_is_replayed_whole_and_by_its_time_stamps() -> None:
    ordered = order_of(Asked(str(EXCERPT)))
    assert isinstance(ordered.workload, OpenLoop)
    assert len(ordered.workload.requests) == 2_728
    assert ordered.plan.minutes == pytest.approx(15, abs=0.02)
    assert (ordered.plan.warm_up_minutes, ordered.plan.replicas, ordered.plan.engine.kv_tokens) == (0.0, 8, 300_000)


def test_a_faster_trace_is_shorter() -> None:
    ordered = order_of(Asked(str(EXCERPT), rate_scale=3.0, warm_up_minutes=2.0))
    assert ordered.plan.minutes == pytest.approx(5, abs=0.02)
    assert ordered.workload.duration_s < ordered.plan.minutes * 60, "the last request comes before the end"


def test_a_recording_brings_its_fleet(recording: Path) -> None:
    plan = order_of(Asked(str(recording))).plan
    assert (plan.replicas, plan.engine.kv_tokens) == (3, 64_000)
    plan = order_of(Asked(str(recording), replicas=5, kv_tokens="1.25M")).plan
    assert (plan.replicas, plan.engine.kv_tokens) == (5, 1_250_000)


def test_a_recording_in_closed_loop_goes_by_its_think_times(recording: Path) -> None:
    ordered = order_of(Asked(str(recording), closed=True))
    assert isinstance(ordered.workload, ClosedLoop)
    (client,) = ordered.workload.clients(1)
    jobs = [client.next_job(), client.next_job(), client.next_job()]
    assert [job and job.think_s for job in jobs] == [0.0, 118.0, None]
    assert jobs[0] is not None
    prompt = jobs[0].request.prompt
    assert prompt is not None
    assert (list(prompt.hashes), list(prompt.ends_bytes)) == ([7 << 50], [160])


def test_coding_agents(coding: Path) -> None:
    ordered = order_of(Asked(str(coding), live=7, minutes=5, seed=3))
    assert isinstance(ordered.workload, Agents)
    assert (ordered.workload.live, ordered.workload.spread_s, ordered.workload.block_tokens) == (7, 600.0, 64)
    assert (ordered.plan.minutes, ordered.plan.warm_up_minutes, ordered.plan.seed) == (15.0, 10.0, 3)
    assert ordered.notes == ("1 requests of more than 150,000 tokens, half a cache, are left out",)


def test_chats() -> None:
    ordered = order_of(Asked("chats:3", rate_scale=1.5, block_tokens=32, speeds="1,3", routers=1))
    assert ordered.workload == Chats(4.5, 12 * 60, 32)
    assert (ordered.plan.minutes, ordered.plan.warm_up_minutes, ordered.plan.speeds) == (12.0, 2.0, (1.0, 3.0))


def test_a_profile_brings_speed_and_room(recording: Path) -> None:
    profile = PROFILES["qwen3-32b-h100"]
    engine = order_of(Asked("chats:3", model_profile=profile.name)).plan.engine
    assert (engine.kv_tokens, engine.prefill_tokens_per_s) == (profile.kv_tokens, profile.prefill_tokens_per_s)
    engine = order_of(Asked(str(recording), model_profile=profile.name)).plan.engine
    assert engine.kv_tokens == 64_000, "the recording knows its engines' room better"


def test_policies() -> None:
    assert policies_of("") == list(DEFAULT_POLICIES)
    assert policies_of("rr, affinity,rr") == ["rr", "affinity"]
    assert policies_of("rr,all") == ["rr", *(name for name in names() if name != "rr")]


def test_sweeps_are_in_order() -> None:
    sweep = sweep_of("kv-tokens=800k,200k,0.2M")
    assert sweep is not None
    assert (sweep.swept, sweep.values) == ("kv-tokens", (200_000, 800_000))
    assert sweep_of("") is None


def test_numbers() -> None:
    assert [number(text, "-n") for text in ("8", "1.5", "200k", "1.25M", "2G", " 3 ")] == [8, 1.5, 2e5, 1.25e6, 2e9, 3]
    assert (count("0.3M", "-n"), counts("1,2k", "-n")) == (300_000, (1, 2_000))
