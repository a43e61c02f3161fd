"""/metrics of the simulated server against an excerpt of a real one's: every `# TYPE` line and the first sample of each
name (those that need --kv-cache-metrics left out)."""

import re
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.utils import floatToGoString

from router.sim.exposition import number
from router.sim.faults import Fault, FaultKind
from router.sim.meters import Histogram, one_two_five
from router.sim.server import SimOptions, SimReplica
from router.sim.types import EngineConfig
from tests.sim.wire import DEADLINE_S, Wire, ask, chat, request

EXCERPT = (Path(__file__).parent / "data" / "vllm_metrics_excerpt.txt").read_text().splitlines()
FAST = SimOptions(models=("tiny", "alias"), time_scale=1_000, max_model_len=8192)
METRICS = request("/metrics")


async def metrics(replica: SimReplica) -> str:
    answer = await ask(replica.port, METRICS)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=1.0.0; charset=utf-8"
    return answer.body.decode()


def samples(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")}


def named(text: str, name: str, **labels: str) -> float:
    """Return the one sample with this name and at least these labels."""
    found = [
        value
        for sample, value in samples(text).items()
        if sample.split("{")[0] == name and all(f'{key}="{known}"' in sample for key, known in labels.items())
    ]
    assert len(found) == 1, f"{name} {labels}: {len(found)} samples"
    return found[0]


def structure(lines: list[str]) -> tuple[set[str], dict[str, list[str]], list[str]]:
    """Return the TYPE lines, the label names of every name's first sample, and the names in order."""
    types = {line for line in lines if line.startswith("# TYPE")}
    labels: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith("#"):
            continue
        name = re.match(r"[\w:]+", line)
        assert name is not None
        labels.setdefault(name[0], re.findall(r'(\w+)="', line))
    return types, labels, list(labels)


async def traffic(replica: SimReplica) -> None:
    """What the excerpt's server had seen: chats, refused chats, an unknown path, a completion."""
    await ask(replica.port, chat())
    await ask(replica.port, chat(n=0))
    await ask(replica.port, request("/nope"))
    await ask(replica.port, request("/v1/completions", {"prompt": "hello", "max_tokens": 2}))


async def test_names_labels_types_and_order_are_vllms() -> None:
    async with SimReplica(FAST) as replica:
        await traffic(replica)
        ours = structure((await metrics(replica)).splitlines())
    theirs = structure(EXCERPT)
    assert ours[0] == theirs[0]
    assert ours[1] == theirs[1]
    assert ours[2] == theirs[2]


async def test_it_is_valid_and_of_the_size_of_a_real_one() -> None:
    async with SimReplica(FAST) as replica:
        await traffic(replica)
        text = await metrics(replica)
    assert 50_000 < len(text) < 70_000
    families = list(text_string_to_metric_families(text))
    assert {family.type for family in families} == {"counter", "gauge", "histogram", "summary"}


async def test_it_is_whole_before_the_first_request() -> None:
    async with SimReplica(FAST) as replica:
        text = await metrics(replica)
    assert named(text, "vllm:prefix_cache_queries_total", model_name="tiny") == 0
    assert named(text, "vllm:engine_sleep_state", sleep_state="awake") == 1
    assert "http_requests_total{" not in text


async def test_the_cache_configuration_is_the_engines() -> None:
    config = EngineConfig(kv_tokens=10_240, block_tokens=32)
    async with SimReplica(SimOptions(engine=config, max_model_len=8192)) as replica:
        text = await metrics(replica)
    sizes = {"block_size": "32", "num_gpu_blocks": "320", "kv_cache_size_tokens": "10240"}
    assert named(text, "vllm:cache_config_info", kv_cache_max_concurrency="1.25", **sizes) == 1


async def test_counters_and_histograms_count_the_requests() -> None:
    async with SimReplica(FAST) as replica:
        usages = [(await ask(replica.port, chat(max_tokens=40))).json()["usage"] for _ in range(3)]
        engine = replica.engine.stats
        text = await metrics(replica)
    prompt_tokens = sum(usage["prompt_tokens"] for usage in usages)
    cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)
    assert named(text, "vllm:prefix_cache_queries_total") == prompt_tokens == engine.prefix_queries_tokens
    assert named(text, "vllm:prefix_cache_hits_total") == cached
    assert named(text, "vllm:prompt_tokens_by_source_total", source="local_compute") == prompt_tokens - cached
    assert named(text, "vllm:prompt_tokens_cached_by_source_total", source="device") == cached
    assert named(text, "vllm:generation_tokens_total") == 120
    assert named(text, "vllm:request_success_total", finished_reason="length") == 3
    assert named(text, "vllm:request_generation_tokens_bucket", le="20.0") == 0
    assert named(text, "vllm:request_generation_tokens_bucket", le="50.0") == 3
    assert named(text, "vllm:request_generation_tokens_sum") == 120
    assert named(text, "vllm:request_params_max_tokens_sum") == 120
    assert named(text, "vllm:time_to_first_token_seconds_count") == 3
    assert named(text, "vllm:time_to_first_token_seconds_sum") > 0
    assert named(text, "vllm:inter_token_latency_seconds_count") == 117
    assert named(text, "vllm:e2e_request_latency_seconds_bucket", le="+Inf") == 3
    route = {"handler": "/v1/chat/completions", "method": "POST"}
    assert named(text, "http_requests_total", status="2xx", **route) == 3
    assert named(text, "http_request_duration_seconds_count", **route) == 3


async def test_gauges_show_what_runs_and_waits() -> None:
    config = EngineConfig(max_num_seqs=1)
    async with SimReplica(SimOptions(engine=config)) as replica, await Wire.open(replica.port) as first:
        replica.faults.set(Fault(FaultKind.SLEEP))
        first.send(chat())
        await replica.wait_for(lambda: replica.engine.running == 1, DEADLINE_S)
        async with await Wire.open(replica.port) as second:
            second.send(chat())
            await replica.wait_for(lambda: replica.engine.waiting == 1, DEADLINE_S)
            text = await metrics(replica)
        await replica.wait_for(lambda: replica.engine.waiting == 0, DEADLINE_S)
    assert named(text, "vllm:num_requests_running") == 1
    assert named(text, "vllm:num_requests_waiting") == 1
    assert named(text, "vllm:num_requests_waiting_by_reason", reason="capacity") == 1
    assert 0 < named(text, "vllm:kv_cache_usage_perc") < 0.01
    assert named(text, "vllm:engine_sleep_state", sleep_state="awake") == 0
    assert named(text, "vllm:engine_sleep_state", sleep_state="weights_offloaded") == 1


async def test_a_restart_begins_all_counts_anew() -> None:
    async with SimReplica(FAST) as replica:
        await traffic(replica)
        before = await metrics(replica)
        replica.restart_cold()
        after = await metrics(replica)
    start = "process_start_time_seconds"
    assert named(after, start) > named(before, start)
    assert named(after, "vllm:prompt_tokens_created") == named(after, start)
    for name in ("vllm:prompt_tokens_total", "vllm:time_to_first_token_seconds_count"):
        assert named(before, name) > 0
        assert named(after, name) == 0
    assert "http_requests_total{" not in after


async def test_old_names_replace_the_new_ones() -> None:
    async with SimReplica(SimOptions(time_scale=1_000, old_metric_names=True)) as replica:
        await traffic(replica)
        text = await metrics(replica)
    assert named(text, "vllm:gpu_cache_usage_perc") == 0
    assert named(text, "vllm:gpu_prefix_cache_queries_total") > 0
    assert named(text, "vllm:gpu_prefix_cache_hits_total") == 0
    assert "vllm:kv_cache_usage_perc" not in text
    assert "vllm:prefix_cache" not in text


@given(st.one_of(st.floats(allow_nan=False), st.integers(0, 10**12).map(float), st.floats(0, 1e18)))
def test_numbers_are_written_as_the_client_library_writes_them(value: float) -> None:
    reference: Any = floatToGoString
    assert number(value) == reference(value)


@given(st.lists(st.floats(0, 100, allow_nan=False)), st.lists(st.floats(0, 100), unique=True).map(sorted))
def test_a_bucket_holds_what_is_up_to_its_bound(values: list[float], bounds: list[float]) -> None:
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    for place, bound in enumerate(bounds):
        assert sum(histogram.counts[: place + 1]) == sum(value <= bound for value in values)
    assert sum(histogram.counts) == len(values)


def test_token_buckets_end_at_the_models_length() -> None:
    assert one_two_five(8192) == [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]
