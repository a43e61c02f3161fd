"""Reading a vLLM's exposition: what is there is read, whatever is not is unknown, and nothing ever raises."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.adapters.vllm_metrics import NAMES, parse_ranks
from router.core.types import EngineReport

REAL = (Path(__file__).parents[1] / "sim" / "data" / "vllm_metrics_excerpt.txt").read_text()
"""Lines of a real vLLM 0.32.0."""

PAGE = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1000.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 400.0
vllm:external_prefix_cache_queries_total{engine="0",model_name="m"} 600.0
vllm:external_prefix_cache_hits_total{engine="0",model_name="m"} 48.0
vllm:num_preemptions_total{engine="0",model_name="m"} 1.0
vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="awake"} 1.0
vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="weights_offloaded"} 0.0
vllm:cache_config_info{block_size="16",engine="0",kv_cache_size_tokens="300000",num_gpu_blocks="18750"} 1.0
process_start_time_seconds 1.79600599119e+09
"""

READ = EngineReport(3, 2, 0.25, 300_000, 16, 1000.0, 400.0, 1.0, 1_796_005_991.19, False, 600.0, 48.0)


def parse_report(text: str) -> EngineReport:
    """An engine that is one replica: all of its page."""
    (report,) = parse_ranks(text, [None])
    assert report is not None
    return report


def test_a_page_is_read() -> None:
    assert parse_report(PAGE) == READ


def test_a_real_page_is_read() -> None:
    report = parse_report(REAL)
    assert report.kv_tokens == 10_240
    assert report.block_tokens == 32
    assert report.start_time_s == 1.79600599119e09
    assert report.asleep is False
    unknown = [name for name in EngineReport.__struct_fields__ if getattr(report, name) is None]
    assert unknown == []


def test_names_of_older_releases_are_read() -> None:
    old = PAGE.replace("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
    old = old.replace("vllm:prefix_cache_", "vllm:gpu_prefix_cache_")
    assert parse_report(old) == READ


def test_old_and_new_names_on_one_page_are_the_same_counts() -> None:
    """Releases around 0.10 show both for a while: nothing is counted twice."""
    lines = PAGE.splitlines()
    hits = [line for line in lines if "vllm:prefix_cache" in line]
    both = [line.replace("vllm:prefix_cache_", "vllm:gpu_prefix_cache_") for line in hits]
    both += [line.replace("vllm:kv_cache_usage", "vllm:gpu_cache_usage") for line in lines if "kv_cache_usage" in line]
    assert parse_report(PAGE + "\n".join(both) + "\n") == READ


def test_data_parallel_ranks_are_one_replica() -> None:
    second = [line.replace('engine="0"', 'engine="1"') for line in PAGE.splitlines() if 'engine="0"' in line]
    report = parse_report(PAGE + "\n".join(second) + "\n")
    assert (report.running, report.waiting, report.kv_tokens, report.block_tokens) == (6, 4, 600_000, 16)
    assert report.prefix_queries_tokens == 2000.0
    assert report.kv_usage_ratio == 0.25


def of_engine(label: int) -> list[str]:
    """The lines of one engine of a data-parallel page. It runs as many requests as its label says."""
    lines = [line.replace('engine="0"', f'engine="{label}"') for line in PAGE.splitlines() if 'engine="0"' in line]
    return [re.sub(r"(num_requests_running\{.*\}) .*", rf"\1 {label}.0", line) for line in lines]


def data_parallel(*labels: int) -> str:
    """A page of several engines. Only the process's start is of all of them."""
    engines = [line for label in labels for line in of_engine(label)]
    return "\n".join(["process_start_time_seconds 1.79600599119e+09", *engines]) + "\n"


def test_each_data_parallel_rank_is_read_for_itself() -> None:
    first, third, whole = parse_ranks(data_parallel(0, 1, 2), (0, 2, None))
    assert first == msgspec.structs.replace(READ, running=0)
    assert third == msgspec.structs.replace(READ, running=2)
    assert whole is not None
    assert (whole.running, whole.kv_tokens) == (3, 900_000)


def test_ranks_of_one_node_of_several_count_from_its_first_label() -> None:
    """With hybrid load balancing the second node's labels begin above 0; requests name its ranks from 0 on."""
    reports = parse_ranks(data_parallel(4, 5, 10, 11), (0, 1, 2, 3))
    assert [report.running for report in reports if report] == [4, 5, 10, 11]


def test_a_rank_that_the_page_has_not_is_none() -> None:
    assert parse_ranks(data_parallel(0, 1), (1, 2)) == [msgspec.structs.replace(READ, running=1), None]


def test_a_page_that_tells_no_ranks_apart_is_every_ranks() -> None:
    page = PAGE.replace('engine="0",', "")
    assert parse_ranks(page, (0, 7)) == [READ, READ]
    assert parse_ranks("", (0, 7)) == [EngineReport(), EngineReport()]


@given(st.text(), st.lists(st.none() | st.integers(0, 3), max_size=4))
def test_any_text_is_read_for_any_ranks(text: str, ranks: list[int | None]) -> None:
    assert len(parse_ranks(PAGE + text, ranks)) == len(ranks)


def test_one_sleeping_rank_is_a_sleeping_replica() -> None:
    asleep = PAGE.replace('sleep_state="awake"} 1.0', 'sleep_state="awake"} 0.0')
    assert parse_report(asleep).asleep is True


def test_capacity_without_a_size_in_tokens_is_blocks_times_block() -> None:
    assert parse_report(PAGE.replace('kv_cache_size_tokens="300000",', "")).kv_tokens == 300_000


def test_an_empty_page_is_unknown_throughout() -> None:
    assert parse_report("") == EngineReport()


@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_missing_metric_is_unknown_and_hides_no_other(name: str) -> None:
    page = "\n".join(line for line in PAGE.splitlines() if not line.startswith(name)) + "\n"
    report = parse_report(page)
    changed = {field for field in EngineReport.__struct_fields__ if getattr(report, field) != getattr(READ, field)}
    assert all(getattr(report, field) is None for field in changed)
    assert len(changed) <= 2


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "abc", "", "1e400", "0x10"])
def test_a_value_that_is_no_number_is_unknown(value: str) -> None:
    page = re.sub(r"(num_requests_running\{[^}]*\}) .*", rf"\1 {value}", PAGE)
    report = parse_report(page)
    assert report.running is None
    assert report.waiting == 2


@pytest.mark.parametrize("value", ["1.5", "37", "-0.1"])
def test_a_usage_that_is_no_share_is_unknown(value: str) -> None:
    assert parse_report(PAGE.replace("} 0.25", "} " + value)).kv_usage_ratio is None


@pytest.mark.parametrize("size", ["None", "0", "-16", "sixteen", "", "\u00b2"])
def test_a_capacity_that_is_no_number_is_unknown(size: str) -> None:
    page = PAGE.replace('kv_cache_size_tokens="300000"', f'kv_cache_size_tokens="{size}"')
    assert parse_report(page.replace('num_gpu_blocks="18750"', f'num_gpu_blocks="{size}"')).kv_tokens is None


@given(st.text())
def test_any_text_is_read_without_raising(text: str) -> None:
    assert isinstance(parse_report(text), EngineReport)


@given(st.lists(st.tuples(st.integers(0, len(PAGE)), st.text(max_size=6)), min_size=1, max_size=8))
def test_any_damage_to_a_page_is_read_without_raising(damage: list[tuple[int, str]]) -> None:
    page = PAGE
    for place, text in damage:
        page = page[:place] + text + page[place + len(text) :]
    report = parse_report(page)
    for name in EngineReport.__struct_fields__:
        value = getattr(report, name)
        assert value is None or value >= 0


@given(st.integers(0, len(PAGE)))
def test_a_page_cut_off_anywhere_says_nothing_false(length: int) -> None:
    """A cut in the middle of a number would make a wrong one of it: only whole lines count."""
    report = parse_report(PAGE[:length])
    for name in EngineReport.__struct_fields__:
        assert getattr(report, name) in (None, getattr(READ, name)), name
