"""`warmroute doctor` on a router in front of two real vLLM servers, one of which lacks what it should have.

Not run by default: see test_real_vllm_cache.py.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from random import Random

import pytest

from router.app.demo.processes import RouterUrls, router
from router.app.doctor.command import target_of
from router.app.doctor.examine import Extent, Report, examine
from router.app.doctor.findings import Check, Finding, Level
from tests.app.doctor.ready import until_known
from tests.contract.vllm_server import VllmCache, make_tiny_model, serving_vllm, vllm_python

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

CACHE = VllmCache()
LINE = re.compile(r"hits rose by ([\d,]+) of ([\d,]+) tokens, (\d+) full blocks of 32, on the same replica \(r-\w+\)")


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """One as it should be, one without caching."""
    python, work = vllm_python(), tmp_path_factory.mktemp("vllm")
    model = make_tiny_model(python, work / "model")
    with (
        serving_vllm(python, model, work / "a", CACHE, "--kv-cache-metrics") as sound,
        serving_vllm(python, model, work / "b", CACHE, "--no-enable-prefix-caching") as off,
    ):
        yield [sound, off]


def doctor(urls: RouterUrls, *, thorough: bool = False) -> Report:
    return asyncio.run(examine(target_of(urls.clients, urls.admin, [], None, {}), Extent(thorough=thorough), Random(7)))


def one(report: Report, check: Check) -> Finding:
    (found,) = [finding for finding in report.findings if finding.check is check]
    return found


def test_a_sound_engine_has_no_problem_and_turn_two_hits_turn_one(engines: list[str]) -> None:
    with router(engines[:1], ("--port", "0", "--admin-port", "0")) as urls:
        until_known(urls.clients, 1)
        report = doctor(urls, thorough=True)
    assert report.sound, report
    told = LINE.match(one(report, Check.TWO_TURNS).what)
    assert told, one(report, Check.TWO_TURNS)
    hits, prompt, blocks = (int(number.replace(",", "")) for number in told.groups())
    assert 1_000 < prompt < 4_000
    assert prompt - 2 * CACHE.block_tokens < hits == blocks * CACHE.block_tokens
    assert one(report, Check.VERSION).level is Level.OK
    assert one(report, Check.KEEP_ALIVE).level is Level.OK
    assert one(report, Check.TOKEN_DETAILS).level is Level.OK
    assert one(report, Check.CAPACITY).what == "10,240 tokens in blocks of 32: 1.2 conversations of 8,192"


def test_caching_that_is_off_is_found_both_ways(engines: list[str]) -> None:
    with router(engines[1:], ("--port", "0", "--admin-port", "0")) as urls:
        until_known(urls.clients, 1)
        report = doctor(urls)
    assert not report.sound
    assert one(report, Check.PREFIX_CACHING).level is Level.PROBLEM
    assert one(report, Check.TWO_TURNS).why == "its prefix caching is off"
    assert one(report, Check.KV_METRICS).change == "--kv-cache-metrics"


def test_two_engines_that_are_not_alike(engines: list[str]) -> None:
    with router(engines, ("--port", "0", "--admin-port", "0")) as urls:
        until_known(urls.clients, 2)
        report = doctor(urls)
    assert "prefix caching differs" in one(report, Check.ALIKE).what
    assert not [finding for finding in report.findings if finding.check is Check.LISTED_TWICE]
