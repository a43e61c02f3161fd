"""Where the API server is, whom to trust, and what is missing."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme

from router.adapters.discovery.kubernetes.cluster import Cluster, own_cluster
from router.adapters.discovery.source import open_source
from router.adapters.discovery.trouble import Unreadable
from tests.adapters.discovery.clusters import PODS, SLICES, STEADY, Opening, add, url, watching
from tests.adapters.discovery.hearing import Log, hearing
from tests.adapters.discovery.kubernetes_objects import pod
from tests.rig.kubernetes import FakeKubernetes


def test_a_pod_is_told_where_its_cluster_is() -> None:
    assert own_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}).url == "https://10.0.0.1:6443"
    assert own_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1"}).url == "https://[fd00::1]:443"
    with pytest.raises(Unreadable, match="KUBERNETES_SERVICE_HOST is not set"):
        own_cluster({})


async def test_outside_of_a_cluster(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    async with hearing(open_source(SLICES, 5.0)):
        await log.until(1)
    assert "this source works in a pod only" in log.warnings[0]


@pytest.mark.parametrize("name", ["token", "namespace"])
async def test_a_file_of_the_account_that_is_missing(
    cluster: FakeKubernetes, opened: Opening, account: Path, log: Log, name: str
) -> None:
    text = (account / name).read_text()
    (account / name).unlink()
    async with hearing(opened("kubernetes-pods:.?selector=app=vllm&port=8000")) as heard:
        await log.until(1)
        assert log.warnings[0].endswith(f"{account / name}: No such file or directory")
        (account / name).write_text(text)
        await heard.these(url(1))


@pytest.fixture
async def guarded(account: Path) -> AsyncIterator[FakeKubernetes]:
    """A cluster with TLS; the account's folder has its authority."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(account / "ca.crt"))
    async with FakeKubernetes(context) as cluster:
        cluster.put("pods", pod("vllm-0", address="10.0.0.1"))
        yield cluster


async def test_tls_by_the_cluster_s_own_authority(guarded: FakeKubernetes, account: Path) -> None:
    async with hearing(open_source(PODS, 5.0, cluster=lambda: Cluster(guarded.url, account), pace=STEADY)) as heard:
        await watching(guarded, heard)
        add(guarded, 2)
        await heard.these(url(1), url(2))


async def test_another_authority_is_not_trusted_and_a_new_one_is_found(
    guarded: FakeKubernetes, account: Path, log: Log
) -> None:
    right = (account / "ca.crt").read_bytes()
    trustme.CA().cert_pem.write_to_path(str(account / "ca.crt"))
    async with hearing(open_source(PODS, 5.0, cluster=lambda: Cluster(guarded.url, account), pace=STEADY)) as heard:
        await log.until(1)
        assert "certificate verify failed" in log.warnings[0]
        (account / "ca.crt").unlink()
        await log.until(1, logging.INFO)
        assert "ca.crt: No such file or directory" in log.of(logging.INFO)[0]
        (account / "ca.crt").write_bytes(right)
        await heard.these(url(1))
    assert {each.token for each in guarded.asked} == {"first-token"}
