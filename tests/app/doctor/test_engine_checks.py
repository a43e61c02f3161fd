"""Each finding about one engine: there where it should be, and not where it should not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from router.app.doctor.asking import Reply
from router.app.doctor.engine_checks import check_engine
from router.app.doctor.engines import ModelCard, release
from router.app.doctor.findings import Check, Level
from router.app.doctor.page import read_page
from tests.app.doctor.seen import MISSING, REFUSED, engine, found, level, page, place, row

CACHE = 'kv_cache_size_tokens="10240"'
IDLE = """# TYPE vllm:kv_block_idle_before_evict_seconds histogram
vllm:kv_block_idle_before_evict_seconds_bucket{le="5.0"} %s
vllm:kv_block_idle_before_evict_seconds_bucket{le="300.0"} %s
vllm:kv_block_idle_before_evict_seconds_bucket{le="+Inf"} %s
"""
EXTERNAL = (
    'vllm:external_prefix_cache_queries_total{engine="0",model_name="tiny"} 0.0',
    'vllm:external_prefix_cache_queries_total{engine="0",model_name="tiny"} 1713.0',
)
HITS = (
    'vllm:external_prefix_cache_hits_total{engine="0",model_name="tiny"} 0.0',
    'vllm:external_prefix_cache_hits_total{engine="0",model_name="tiny"} 128.0',
)
RANK = 'vllm:num_requests_running{engine="1",model_name="tiny"} 0.0\n'


def test_an_engine_with_nothing_wrong_has_notes_at_the_worst() -> None:
    levels = {finding.check: finding.level for finding in check_engine(engine())}
    noted = {check for check, found_level in levels.items() if found_level is Level.NOTE}
    assert noted == {Check.OFFLOAD, Check.KV_METRICS, Check.SHUTDOWN_TIMEOUT}
    assert set(levels.values()) == {Level.OK, Level.NOTE}
    assert {Check.ONE_ENGINE, Check.AWAKE, Check.RANKS, Check.DEV_MODE}.isdisjoint(levels)


def test_prefix_caching_off_is_a_problem() -> None:
    off = engine(page=page(('enable_prefix_caching="True"', 'enable_prefix_caching="False"')))
    told = found(check_engine(off), Check.PREFIX_CACHING)
    assert told.level is Level.PROBLEM
    assert "--no-enable-prefix-caching" in told.change


def test_an_engine_that_does_not_say_whether_it_caches_is_noted() -> None:
    silent = engine(page=page(('enable_prefix_caching="True",', "")))
    assert level(check_engine(silent), Check.PREFIX_CACHING) is Level.NOTE


@pytest.mark.parametrize(
    ("version", "expected", "names"),
    [
        ("0.32.0", Level.OK, []),
        ("0.33.1.dev4+gabc", Level.OK, []),
        ("0.31.0", Level.NOTE, ["/kv_event_sources"]),
        ("0.27.1", Level.NOTE, ["--max-num-queued-reqs", "/kv_event_sources"]),
        ("0.19.1", Level.WARNING, ["created_cache_tokens", "session_id", "/kv_event_sources"]),
        (None, Level.NOTE, []),
    ],
)
def test_what_a_release_lacks_is_named(version: str | None, expected: Level, names: list[str]) -> None:
    told = found(check_engine(engine(version=version)), Check.VERSION)
    assert told.level is expected
    for name in names:
        assert name in told.why
    assert bool(told.why) == bool(names)


def test_releases_are_compared_as_numbers() -> None:
    assert release("0.9.2") < release("0.27.0")  # type: ignore[operator]
    assert release("v1.2") == (1, 2, 0)
    assert release("dev") is None


def test_capacity_says_how_many_full_conversations_fit() -> None:
    told = found(check_engine(engine()), Check.CAPACITY)
    assert (told.level, told.what) == (Level.OK, "10,240 tokens in blocks of 32: 5.0 conversations of 2,048")


def test_a_cache_for_fewer_than_two_conversations_is_a_warning() -> None:
    small = engine(models=(ModelCard("tiny", 8_192, None, None),))
    told = found(check_engine(small), Check.CAPACITY)
    assert told.level is Level.WARNING
    assert "1.2 conversations of 8,192" in told.what
    assert "--kv-offloading-size" in told.change


def test_capacity_of_releases_that_give_blocks_alone() -> None:
    told = found(check_engine(engine(page=page((CACHE, 'other="1"')))), Check.CAPACITY)
    assert told.what.startswith("10,240 tokens in blocks of 32")


def test_offload_that_was_asked_for_says_how_much_came_from_it() -> None:
    told = found(check_engine(engine(page=page(EXTERNAL, HITS))), Check.OFFLOAD)
    assert told.level is Level.OK
    assert "128 of 1,713 tokens" in told.what


def test_offload_that_was_not_asked_yet() -> None:
    sized = engine(page=page(('kv_offloading_size="None"', 'kv_offloading_size="32"')))
    told = found(check_engine(sized), Check.OFFLOAD)
    assert (told.level, "32 GiB" in told.what) == (Level.OK, True)


def test_a_connector_shows_in_a_metric_of_its_own() -> None:
    stage = 'vllm:num_requests_kv_fetch_by_stage{engine="0",stage="in_progress"} 0.0\n'
    assert level(check_engine(engine(page=page(more=stage))), Check.OFFLOAD) is Level.OK
    assert level(check_engine(engine()), Check.OFFLOAD) is Level.NOTE


@pytest.mark.parametrize(
    ("counts", "expected", "says"),
    [
        ((90, 100, 100), Level.WARNING, "less than 2.78 s"),
        ((10, 100, 100), Level.OK, "136 s or more"),
        ((0, 0, 0), Level.OK, "nothing has been evicted"),
    ],
)
def test_how_long_what_is_unused_stays(counts: tuple[int, int, int], expected: Level, says: str) -> None:
    told = found(check_engine(engine(page=page(more=IDLE % counts))), Check.KV_METRICS)
    assert told.level is expected
    assert says in told.what


def test_without_kv_metrics_the_flag_is_named() -> None:
    assert found(check_engine(engine()), Check.KV_METRICS).change == "--kv-cache-metrics"


@pytest.mark.parametrize(
    ("sources", "expected", "says"),
    [({}, Level.OK, "off"), ({"0": {"publisher": "zmq"}}, Level.OK, "published"), (None, Level.NOTE, "does not say")],
)
def test_kv_events(sources: dict[str, Any] | None, expected: Level, says: str) -> None:
    told = found(check_engine(engine(event_sources=sources)), Check.KV_EVENTS)
    assert told.level is expected
    assert says in told.what


@pytest.mark.parametrize(("limit_s", "expected"), [(0, Level.WARNING), (60, Level.OK), (None, Level.NOTE)])
def test_the_shutdown_time_out_shows_in_development_mode_only(limit_s: int | None, expected: Level) -> None:
    info = None if limit_s is None else {"vllm_config": {"shutdown_timeout": limit_s}}
    told = check_engine(engine(server_info=info))
    assert level(told, Check.SHUTDOWN_TIMEOUT) is expected
    assert any(finding.check is Check.DEV_MODE for finding in told) == (info is not None)


def test_a_sleeping_engine_is_told() -> None:
    asleep = engine(page=page(('sleep_state="awake"} 1.0', 'sleep_state="awake"} 0.0')))
    assert level(check_engine(asleep), Check.AWAKE) is Level.WARNING
    paused = engine(place=place(1, row(1, asleep=True)))
    assert level(check_engine(paused), Check.AWAKE) is Level.WARNING


def test_an_engine_that_wants_a_key_is_told_with_the_variable() -> None:
    told = found(check_engine(engine(models=(), listing=Reply(401))), Check.MODELS)
    assert told.level is Level.WARNING
    assert "WARMROUTE_ENGINE_API_KEY" in told.change


def test_several_engines_behind_one_address() -> None:
    spread = engine(identities=frozenset({(1.0, 1.0), (2.0, 1.0)}))
    assert level(check_engine(spread), Check.ONE_ENGINE) is Level.PROBLEM


def test_ranks_that_the_router_does_not_know() -> None:
    told = found(check_engine(engine(page=page(more=RANK))), Check.RANKS)
    assert (told.level, told.change) == (Level.PROBLEM, "--replica http://gpu-1:8000?ranks=2")


def test_ranks_that_are_not_there() -> None:
    known = place(1, row(1, rank=0), row(2, url="http://gpu-1:8000", rank=1))
    told = found(check_engine(engine(place=known)), Check.RANKS)
    assert (told.level, told.change) == (Level.PROBLEM, "--replica http://gpu-1:8000")


def test_ranks_that_the_router_knows() -> None:
    known = place(1, row(1, rank=0), row(2, url="http://gpu-1:8000", rank=1))
    assert level(check_engine(engine(place=known, page=page(more=RANK))), Check.RANKS) is Level.OK


def test_an_engine_that_the_router_reaches_and_doctor_does_not() -> None:
    gone: dict[str, Any] = {
        "health": REFUSED,
        "metrics": REFUSED,
        "listing": REFUSED,
        "page": None,
        "models": (),
        "version": None,
    }
    told = check_engine(engine(**gone))
    assert [(finding.check, finding.level) for finding in told] == [(Check.REACHABLE, Level.WARNING)]
    ejected = replace(engine(**gone), place=place(1, row(1, state="ejected")))
    assert level(check_engine(ejected), Check.REACHABLE) is Level.PROBLEM


def test_an_engine_whose_health_fails() -> None:
    assert level(check_engine(engine(health=Reply(503))), Check.REACHABLE) is Level.PROBLEM


def test_a_router_in_place_of_an_engine() -> None:
    told = check_engine(engine(is_router=True))
    assert level(told, Check.IS_VLLM) is Level.PROBLEM
    assert "two routers" in found(told, Check.IS_VLLM).why
    assert len(told) == 2  # nothing else is said of what is no engine


@pytest.mark.parametrize(
    ("text", "version", "says"),
    [
        (None, None, "404"),
        ("process_cpu_seconds_total 1.0\n", None, "no vLLM answers"),
        ("process_cpu_seconds_total 1.0\n", "0.32.0", "says nothing of vLLM"),
    ],
)
def test_what_is_no_vllm(text: str | None, version: str | None, says: str) -> None:
    other = engine(page=read_page(text) if text else None, metrics=MISSING, version=version)
    told = found(check_engine(other), Check.IS_VLLM)
    assert told.level is Level.PROBLEM
    assert says in told.what
