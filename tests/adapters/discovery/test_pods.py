"""Which pods are replicas, and what they say of themselves."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.adapters.discovery.description import PodSource
from router.adapters.discovery.endpoints import Traits
from router.adapters.discovery.kubernetes.objects import Pod, Reading
from router.adapters.discovery.kubernetes.pods import replicas_of_pods
from router.ports import Endpoint
from tests.adapters.discovery.kubernetes_objects import pod

SOURCE = PodSource("default", ("app=vllm",), 8000)


def read(*pods: dict[str, Any], source: PodSource = SOURCE) -> Reading:
    return replicas_of_pods([msgspec.convert(each, Pod) for each in pods], source)


def test_a_ready_pod_is_a_replica() -> None:
    assert read(pod()) == Reading(
        [Endpoint("http://10.0.0.1:8000", "uid-vllm-0", labels=(("node", "node-1"), ("pod", "vllm-0")))], []
    )


@pytest.mark.parametrize(
    "other",
    [
        pod(ready=False),
        pod(phase="Pending"),
        pod(phase="Succeeded"),
        pod(phase="Failed"),
        pod(address=None),
        pod(address=""),
        pod(ready=False, deleted=True),
        {"metadata": {"name": "new", "namespace": "default", "uid": "1"}},
        {"metadata": {"name": "new", "namespace": "default", "uid": "1"}, "status": {"phase": "Running"}},
    ],
)
def test_another_one_is_not(other: dict[str, Any]) -> None:
    assert read(other) == Reading([], [])


def test_a_pod_that_is_being_deleted_leaves_while_it_is_ready() -> None:
    (found,) = read(pod(deleted=True)).endpoints
    assert found.leaving


def test_a_new_pod_at_an_old_address_is_another_replica() -> None:
    (before,), (after,) = read(pod(uid="1")).endpoints, read(pod(uid="2")).endpoints
    assert before.url == after.url
    assert before.identity != after.identity


def test_a_port_by_name() -> None:
    source = PodSource("default", ("app=vllm",), "api", "https")
    assert read(pod(ports=[("metrics", 9090), ("api", 8443)]), source=source).endpoints[0].url == "https://10.0.0.1:8443"
    without = read(pod(), source=source)
    assert without == Reading([], ["pod vllm-0: none of its containers has a port named api"])


def test_a_number_need_not_be_declared() -> None:
    assert len(read(pod(ports=[])).endpoints) == 1


def test_an_address_of_ipv6() -> None:
    assert read(pod(address="fd00::1")).endpoints[0].url == "http://[fd00::1]:8000"


def test_what_a_pod_says_of_itself_goes_before_what_the_source_says() -> None:
    source = PodSource("default", ("app=vllm",), 8000, "http", Traits(("all",), 5.0))
    annotations = {"warmroute/model": "org/llama, lora", "warmroute/ranks": " 2 "}
    labels = {"warmroute/model": "label", "warmroute/weight": "0.5"}
    first, second = pod(annotations=annotations, labels=labels), pod("vllm-1", address="10.0.0.2")
    found = read(first, second, source=source).endpoints
    assert [(each.rank, each.models, each.weight) for each in found] == [
        (0, ("org/llama", "lora"), 0.5), (1, ("org/llama", "lora"), 0.5), (None, ("all",), 5.0),
    ]  # fmt: skip


def test_what_it_says_wrongly_is_left_out_and_told() -> None:
    wrong = {"warmroute/weight": "heavy", "warmroute/ranks": "many", "warmroute/model": " , "}
    found, remarks = read(pod(annotations=wrong))
    assert [(each.rank, each.models, each.weight) for each in found] == [(None, (), 1.0)]
    assert remarks == [
        "pod vllm-0: warmroute/ranks: ranks must be a number from 1 to 1024",
        "pod vllm-0: warmroute/weight: weight must be a number above 0 and up to 1000, not 'heavy'",
    ]


PODS = st.builds(
    pod,
    st.integers(0, 5).map("vllm-{}".format),
    st.integers(0, 9).map(str),
    st.integers(1, 4).map("10.0.0.{}".format),
    ready=st.booleans(),
    deleted=st.booleans(),
    annotations=st.sampled_from([None, {"warmroute/weight": "x"}, {"warmroute/ranks": "3"}]),
)


@given(st.lists(PODS, unique_by=lambda each: each["metadata"]["uid"]), st.randoms())
def test_order_says_nothing_and_the_rest_of_the_list_nothing_of_a_pod(
    pods: list[dict[str, Any]], chance: random.Random
) -> None:
    found = read(*pods).endpoints
    mixed = pods[:]
    chance.shuffle(mixed)
    assert sorted(read(*mixed).endpoints, key=str) == sorted(found, key=str)
    alone = [each for one in pods for each in read(one).endpoints]
    assert sorted(alone, key=str) == sorted(found, key=str)
    assert len({each.identity for each in found}) == len(found)
