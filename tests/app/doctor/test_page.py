"""A vLLM's exposition as doctor reads it."""

from __future__ import annotations

import pytest

from router.app.doctor.page import IDLE, read_page
from tests.app.doctor.seen import page

HISTOGRAM = """# TYPE vllm:kv_block_idle_before_evict_seconds histogram
vllm:kv_block_idle_before_evict_seconds_bucket{engine="0",le="10.0"} 2.0
vllm:kv_block_idle_before_evict_seconds_bucket{engine="0",le="20.0"} 6.0
vllm:kv_block_idle_before_evict_seconds_bucket{engine="0",le="+Inf"} %s
"""


def test_counters_size_and_identity_of_a_real_page() -> None:
    read = page()
    assert read.is_vllm
    assert read.ranks == 1
    assert read.cache["block_size"] == "32"
    assert read.cache["kv_cache_size_tokens"] == "10240"
    counters = read.counters
    assert (counters.queries_tokens, counters.hits_tokens, counters.external_hits_tokens) == (67_740, 31_456, 0)
    assert read.identity == (1796005991.19, 1796006032.6482942)


def test_names_of_old_releases() -> None:
    read = page(("vllm:prefix_cache", "vllm:gpu_prefix_cache"))
    assert (read.counters.queries_tokens, read.counters.hits_tokens) == (67_740, 31_456)


def test_ranks_are_counted_and_summed() -> None:
    more = 'vllm:num_requests_running{engine="1"} 0.0\nvllm:prefix_cache_hits_total{engine="1"} 44.0\n'
    text = "".join(line for line in more.splitlines(keepends=True))
    read = read_page(
        f'vllm:num_requests_running{{engine="0"}} 0.0\nvllm:prefix_cache_hits_total{{engine="0"}} 6.0\n{text}'
    )
    assert read is not None
    assert read.ranks == 2
    assert read.counters.hits_tokens == 50


@pytest.mark.parametrize(
    ("total", "median_s"),
    [("6.0", 12.5), ("4.0", 10.0), ("12.0", 20.0), ("13.0", 20.0), ("0.0", None)],
)
def test_the_median_is_found_within_its_bucket(total: str, median_s: float | None) -> None:
    """Of 6: the third lies a quarter into the bucket of four. Above the last bound only that bound is known."""
    read = read_page(HISTOGRAM % total)
    assert read is not None
    assert read.median(IDLE) == median_s


def test_without_the_histogram_there_is_no_median() -> None:
    assert page().median(IDLE) is None


@pytest.mark.parametrize(
    "text", ["", "<html>no metrics</html>", 'vllm:kv_cache_usage_perc{engine="0"} NaN NaN\n{}} 1\n']
)
def test_what_is_no_exposition_is_no_page(text: str) -> None:
    assert read_page(text) is None


def test_another_programs_page_is_no_vllms() -> None:
    read = read_page("process_cpu_seconds_total 1.0\n")
    assert read is not None
    assert not read.is_vllm
