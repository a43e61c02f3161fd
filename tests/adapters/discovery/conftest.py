from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from router.adapters.discovery.kubernetes.cluster import Cluster
from router.adapters.discovery.kubernetes.follow import Pace
from router.adapters.discovery.source import open_source
from router.ports import Discovery
from tests.adapters.discovery.clusters import PODS, STEADY, Opening
from tests.adapters.discovery.hearing import Log
from tests.adapters.discovery.kubernetes_objects import endpoint, endpoint_slice, pod
from tests.rig.kubernetes import FakeKubernetes


@pytest.fixture
def log() -> Iterator[Log]:
    """What `warmroute.discovery` logs during the test."""
    log, logger = Log(), logging.getLogger("warmroute.discovery")
    before = logger.level
    logger.addHandler(log)
    logger.setLevel(logging.INFO)
    yield log
    logger.removeHandler(log)
    logger.setLevel(before)


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """A folder as every pod has it."""
    for name, text in (("token", "first-token\n"), ("namespace", "default")):
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
async def cluster() -> AsyncIterator[FakeKubernetes]:
    async with FakeKubernetes() as cluster:
        cluster.put("pods", pod("vllm-0", address="10.0.0.1"))
        cluster.put("endpointslices", endpoint_slice(endpoint("10.0.0.1", "uid-vllm-0")))
        yield cluster


@pytest.fixture
def opened(cluster: FakeKubernetes, account: Path) -> Opening:
    def open_it(text: str = PODS, pace: Pace = STEADY) -> Discovery:
        return open_source(text, 5.0, cluster=lambda: Cluster(cluster.url, account), pace=pace)

    return open_it
