"""The fake API server is good enough for kubectl, which nobody here has written."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.adapters.discovery.kubernetes_objects import endpoint, endpoint_slice, pod
from tests.rig.client import DEADLINE_S
from tests.rig.kubernetes import FakeKubernetes

KUBECTL = shutil.which("kubectl") or ""
pytestmark = pytest.mark.skipif(not KUBECTL, reason="kubectl is not installed")


@pytest.fixture
async def cluster() -> AsyncIterator[FakeKubernetes]:
    async with FakeKubernetes() as cluster:
        for number in range(3):
            cluster.put("pods", pod(f"vllm-{number}", address=f"10.0.0.{number}"))
        cluster.put("pods", pod("other", labels={"app": "other"}))
        cluster.put("endpointslices", endpoint_slice(endpoint()))
        yield cluster


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Without anybody's own settings, and with a cache that is thrown away."""
    return tmp_path


async def start(cluster: FakeKubernetes, home: Path, *words: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        KUBECTL, f"--server={cluster.url}", *words, env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def output(cluster: FakeKubernetes, home: Path, *words: str) -> str:
    process = await start(cluster, home, *words)
    async with asyncio.timeout(DEADLINE_S):
        out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return out.decode()


async def test_it_lists_in_pages_by_label(cluster: FakeKubernetes, home: Path) -> None:
    said = await output(cluster, home, "get", "pods", "-l", "app in (vllm,x),!old", "-o", "name", "--chunk-size=2")
    assert said.split() == ["pod/vllm-0", "pod/vllm-1", "pod/vllm-2"]
    assert [each.verb for each in cluster.asked] == ["list", "list"]
    said = await output(cluster, home, "get", "endpointslices", "-o", "jsonpath={.items[*].endpoints[*].addresses[*]}")
    assert said == "10.0.0.1"


async def test_it_watches(cluster: FakeKubernetes, home: Path) -> None:
    line = "jsonpath={.type} {.object.metadata.name}{'\\n'}"
    words = ("-l", "app=vllm", "--watch-only", "--output-watch-events", "-o", line)
    process = await start(cluster, home, "get", "pods", *words)
    assert process.stdout is not None
    try:
        await cluster.watched()
        cluster.put("pods", pod("vllm-9"))
        cluster.bookmark()
        cluster.put("pods", pod("vllm-1", ready=False))
        cluster.put("pods", pod("vllm-2", labels={"app": "other"}))
        cluster.delete("pods", "vllm-9")
        async with asyncio.timeout(DEADLINE_S):
            lines = [(await process.stdout.readline()).decode().strip() for _ in range(4)]
    finally:
        process.terminate()
        await process.communicate()
    assert lines == ["ADDED vllm-9", "MODIFIED vllm-1", "DELETED vllm-2", "DELETED vllm-9"]
