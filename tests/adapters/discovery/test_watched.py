"""What changes in a cluster, as a source of Kubernetes tells it."""

from __future__ import annotations

from pathlib import Path

from router.adapters.discovery.kubernetes.api import PAGE_OBJECTS
from tests.adapters.discovery.clusters import PODS, SLICES, Opening, add, url, watching
from tests.adapters.discovery.hearing import Log, hearing
from tests.adapters.discovery.kubernetes_objects import endpoint, endpoint_slice, pod
from tests.rig.kubernetes import FakeKubernetes


async def test_pods_that_come_change_and_go(cluster: FakeKubernetes, opened: Opening, log: Log) -> None:
    async with hearing(opened()) as heard:
        await watching(cluster, heard)
        add(cluster, 2, ready=False)
        add(cluster, 2)
        await heard.these(url(1), url(2))
        cluster.put("pods", pod("vllm-0", address="10.0.0.1", deleted=True))
        await heard.until(lambda found: [each.leaving for each in found] == [True, False])
        cluster.put("pods", pod("vllm-0", address="10.0.0.1", deleted=True, ready=False))
        await heard.these(url(2))
        cluster.delete("pods", "vllm-0")
        cluster.delete("pods", "vllm-2")
        await heard.these()
    assert cluster.count("list") == cluster.count("watch") == 1
    assert log.warnings == []


async def test_a_pod_that_loses_its_label_is_out(cluster: FakeKubernetes, opened: Opening) -> None:
    async with hearing(opened()) as heard:
        await watching(cluster, heard)
        cluster.put("pods", pod("vllm-0", address="10.0.0.1", labels={"app": "other"}))
        await heard.these()
        cluster.put("pods", pod("vllm-0", address="10.0.0.1"))
        await heard.these(url(1))


async def test_a_new_pod_with_an_old_name_and_address_is_another_replica(
    cluster: FakeKubernetes, opened: Opening
) -> None:
    async with hearing(opened()) as heard:
        await watching(cluster, heard)
        cluster.delete("pods", "vllm-0")
        cluster.put("pods", pod("vllm-0", "another", "10.0.0.1"))
        (found,) = await heard.until(lambda found: [each.uid for each in found] == ["another"])
        assert found.identity != heard.lists[0][0].identity


async def test_slices_of_one_service(cluster: FakeKubernetes, opened: Opening) -> None:
    async with hearing(opened(SLICES)) as heard:
        await watching(cluster, heard)
        cluster.put("endpointslices", endpoint_slice(endpoint("10.0.0.9", "other"), name="x", service="other"))
        cluster.put("endpointslices", endpoint_slice(endpoint("10.0.0.2", "uid-vllm-1"), name="second"))
        await heard.these(url(1), url(2))
        cluster.put("endpointslices", endpoint_slice(endpoint("10.0.0.2", "uid-vllm-1", ready=False, serving=False)))
        cluster.delete("endpointslices", "second")
        await heard.these()
    (asked,) = {(each.group, each.plural, each.namespace) for each in cluster.asked}
    assert asked == ("discovery.k8s.io", "endpointslices", "default")


async def test_the_router_s_own_namespace(cluster: FakeKubernetes, opened: Opening, account: Path) -> None:
    (account / "namespace").write_text("llm\n")
    cluster.put("pods", pod("there", address="10.0.0.7", namespace="llm"))
    async with hearing(opened("kubernetes-pods:.?selector=app=vllm&port=8000")) as heard:
        await heard.these(url(7))


async def test_a_change_that_changes_nothing_here_is_not_told(cluster: FakeKubernetes, opened: Opening) -> None:
    async with hearing(opened()) as heard:
        await watching(cluster, heard)
        cluster.put("pods", pod("vllm-0", address="10.0.0.1", labels={"noise": "1"}))
        add(cluster, 2)
        await heard.these(url(1), url(2))
    assert len(heard.lists) == 2


async def test_more_pods_than_a_page_has(cluster: FakeKubernetes, opened: Opening) -> None:
    for number in range(2, 2 * PAGE_OBJECTS + 10):
        add(cluster, number)
    async with hearing(opened()) as heard:
        assert len(await heard.count(1)) == 2 * PAGE_OBJECTS + 9
    assert [each.verb for each in cluster.asked].count("list") == 3


async def test_a_page_that_is_asked_for_too_late_begins_the_list_anew(
    cluster: FakeKubernetes, opened: Opening, log: Log
) -> None:
    for number in range(2, PAGE_OBJECTS + 10):
        add(cluster, number)
    cluster.late_pages = 1
    async with hearing(opened()) as heard:
        assert len(await heard.count(1)) == PAGE_OBJECTS + 9
    assert ["limit" in each.query for each in cluster.asked if each.verb == "list"] == [True, True, False]
    assert log.warnings == []


async def test_what_is_strange_in_a_pod_is_told_once(cluster: FakeKubernetes, opened: Opening, log: Log) -> None:
    add(cluster, 2, annotations={"warmroute/weight": "heavy"})
    async with hearing(opened()) as heard:
        await watching(cluster, heard)
        add(cluster, 3)
        await heard.count(2)
    assert log.warnings == [
        f"{PODS}: pod vllm-2: warmroute/weight: weight must be a number above 0 and up to 1000, not 'heavy'"
    ]
