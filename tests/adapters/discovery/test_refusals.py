"""An API server that does not answer what it is asked for."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from router.adapters.discovery.kubernetes.api import PODS as PODS_API
from router.adapters.discovery.kubernetes.api import Api
from router.adapters.discovery.kubernetes.cluster import Cluster
from router.adapters.discovery.source import open_source
from router.adapters.discovery.trouble import Unreadable
from tests.adapters.discovery.clusters import PODS, SLICES, STEADY, Opening, add, url, watching
from tests.adapters.discovery.hearing import Log, hearing
from tests.adapters.discovery.kubernetes_objects import pod
from tests.rig.kubernetes import FakeKubernetes, Refusal

REFUSALS = [("list", 429), ("list", 500), ("list", 302), ("watch", 429), ("watch", 503)]


@pytest.mark.parametrize(("verb", "code"), REFUSALS)
async def test_a_server_that_is_not_well(
    cluster: FakeKubernetes, opened: Opening, log: Log, code: int, verb: str
) -> None:
    cluster.refusals.append(Refusal(code, verb=verb))
    async with hearing(opened()) as heard:
        await heard.these(url(1))
        await cluster.watched(1 + (verb == "watch"))
        add(cluster, 2)
        await heard.these(url(1), url(2))
    assert log.warnings == [
        f"{PODS} can't be read, its last list stays good: its API server answers {verb} with {code} (not now)",
        f"{PODS} can be read again",
    ]


async def test_a_token_that_was_replaced(cluster: FakeKubernetes, opened: Opening, account: Path, log: Log) -> None:
    cluster.tokens = {"first-token"}
    async with hearing(opened()) as heard:
        await watching(cluster, heard)
        (account / "token").write_text("second-token")
        cluster.tokens = {"second-token"}
        cluster.cut()
        await cluster.watched(2)
        add(cluster, 2)
        await heard.these(url(1), url(2))
    assert {each.token for each in cluster.asked} == {"first-token", "second-token"}
    assert log.warnings == []


async def test_a_token_that_is_replaced_while_it_is_used(
    cluster: FakeKubernetes, opened: Opening, account: Path, log: Log
) -> None:
    """The server knows the new one before the file has it, and the file has it when the 401 comes."""
    cluster.tokens = {"second-token"}
    file = account / "token"
    file.unlink()
    file.symlink_to("current")
    (account / "current").write_text("first-token")

    class Rotating(Cluster):
        def token(self) -> str:
            text = super().token()
            (account / "current").write_text("second-token")
            return text

    source = open_source(PODS, 5.0, cluster=lambda: Rotating(cluster.url, account), pace=STEADY)
    async with hearing(source) as heard:
        await heard.these(url(1))
    assert [each.token for each in cluster.asked][:2] == ["first-token", "second-token"]
    assert log.warnings == []


async def test_a_token_that_is_not_accepted(cluster: FakeKubernetes, opened: Opening, account: Path, log: Log) -> None:
    cluster.tokens = {"other-token"}
    async with hearing(opened()) as heard:
        await log.until(1)
        assert "does not accept the token in" in log.warnings[0]
        assert "first-token" not in log.warnings[0]
        (account / "token").write_text("other-token")
        await heard.these(url(1))


async def test_the_missing_right_is_named(cluster: FakeKubernetes, opened: Opening, log: Log) -> None:
    cluster.forbidden = {"list"}
    async with hearing(opened(SLICES)) as heard:
        await log.until(1)
        assert heard.lists == []
        cluster.forbidden = set()
        await heard.these(url(1))
        await log.until(2)
    assert log.warnings[0].startswith(
        f"{SLICES} can't be read, its last list stays good: the service account may not list "
        "endpointslices.discovery.k8s.io in namespace default: it needs the verbs list and watch on them (User "
    )
    assert log.warnings[1:] == [f"{SLICES} can be read again"]


async def test_without_the_right_to_watch_the_list_is_used(cluster: FakeKubernetes, opened: Opening, log: Log) -> None:
    cluster.forbidden = {"watch"}
    async with hearing(opened()) as heard:
        await heard.these(url(1))
        add(cluster, 2)
        await heard.these(url(1), url(2))
        await cluster.until(lambda: cluster.count("list") > 2)
    assert len(log.warnings) == 1
    assert "may not watch pods in namespace default" in log.warnings[0]


async def test_a_server_that_is_away(cluster: FakeKubernetes, account: Path, log: Log) -> None:
    where = ["http://127.0.0.1:1"]
    source = open_source(PODS, 5.0, cluster=lambda: Cluster(where[0], account), pace=STEADY)
    async with hearing(source) as heard:
        await log.until(1)
        assert "its API server can't be reached: " in log.warnings[0]
        where[0] = cluster.url
        await heard.these(url(1))
        await log.until(2)


async def test_what_is_no_list(cluster: FakeKubernetes, opened: Opening, log: Log) -> None:
    cluster.put("pods", pod("vllm-0") | {"status": "fine"})
    async with hearing(opened()) as heard:
        await log.until(1)
        assert "sends no pods: Expected `object`, got `str`" in log.warnings[0]
        cluster.put("pods", pod("vllm-0", address="10.0.0.1"))
        await heard.these(url(1))


async def test_a_mistake_of_ours_ends_nothing(cluster: FakeKubernetes, account: Path, log: Log) -> None:
    fails = [True]

    def where() -> Cluster:
        if fails:
            fails.clear()
            raise KeyError("ours")
        return Cluster(cluster.url, account)

    async with hearing(open_source(PODS, 5.0, cluster=where, pace=STEADY)) as heard:
        await heard.these(url(1))
        await log.until(2)
    assert log.warnings[0].endswith("KeyError: 'ours'")
    assert log.records[0].exc_info is not None



@pytest.mark.parametrize(
    ("said", "waits_s"),
    [("7", 7.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 0.0), ("-1", 0.0), ("9" * 400, 0.0), (None, 0.0)],
)
async def test_retry_after_is_read(
    cluster: FakeKubernetes, account: Path, said: str | None, waits_s: float
) -> None:
    cluster.refusals.append(Refusal(429, {} if said is None else {"retry-after": said}))
    async with httpx.AsyncClient() as client:
        with pytest.raises(Unreadable, match="answers list with 429") as refused:
            await Api(client, Cluster(cluster.url, account), PODS_API, "default", "app=vllm").listed()
    assert refused.value.retry_after_s == waits_s
