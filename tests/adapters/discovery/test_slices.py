"""Which endpoints of EndpointSlices are replicas, however they are spread over slices."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.adapters.discovery.description import Port, SliceSource
from router.adapters.discovery.endpoints import Traits
from router.adapters.discovery.kubernetes.objects import EndpointSlice, Reading, SlicePort
from router.adapters.discovery.kubernetes.slices import choose_port, replicas_of_slices
from router.ports import Endpoint
from tests.adapters.discovery.kubernetes_objects import endpoint, endpoint_slice, port

SOURCE = SliceSource("default", "vllm")


def read(*slices: dict[str, Any], source: SliceSource = SOURCE) -> Reading:
    return replicas_of_slices([msgspec.convert(each, EndpointSlice) for each in slices], source)


def test_a_ready_endpoint_is_a_replica() -> None:
    labels = (("node", "node-1"), ("pod", "vllm-0"), ("zone", "zone-a"))
    replica = Endpoint("http://10.0.0.1:8000", "uid-vllm-0", labels=labels)
    assert read(endpoint_slice(endpoint())) == Reading([replica], [])


IN, LEAVING, OUT = [False], [True], list[bool]()


@pytest.mark.parametrize(
    ("ready", "serving", "terminating", "expected"),
    [
        (True, True, False, IN),
        (None, None, None, IN),  # unknown: as of slices that people write
        (True, None, None, IN),
        (False, False, False, OUT),
        (False, None, None, OUT),
        (False, True, True, LEAVING),
        (False, False, True, OUT),
        (True, False, False, OUT),  # publishNotReadyAddresses: in the DNS, and not ready
        (True, True, True, LEAVING),  # publishNotReadyAddresses, being deleted
        (True, False, True, OUT),
        (False, True, False, OUT),
    ],
)
def test_conditions(ready: bool | None, serving: bool | None, terminating: bool | None, expected: list[bool]) -> None:
    one = endpoint(ready=ready, serving=serving, terminating=terminating)
    assert [each.leaving for each in read(endpoint_slice(one)).endpoints] == expected


def test_an_endpoint_without_conditions_or_addresses() -> None:
    assert len(read(endpoint_slice({"addresses": ["10.0.0.1"]})).endpoints) == 1
    assert read(endpoint_slice({"addresses": []}, {"addresses": None})) == Reading([], [])
    assert read(endpoint_slice()) == Reading([], [])


def test_a_new_pod_at_an_old_address_is_another_replica() -> None:
    (before,) = read(endpoint_slice(endpoint(uid="1"))).endpoints
    (after,) = read(endpoint_slice(endpoint(uid="2"))).endpoints
    assert (before.url, before.uid, after.uid) == (after.url, "1", "2")


def test_what_is_behind_an_address_need_not_be_a_pod() -> None:
    (found,) = read(endpoint_slice(endpoint(uid=None))).endpoints
    assert found.uid == ""
    node = endpoint() | {"targetRef": {"kind": "Node", "uid": "5"}}
    assert read(endpoint_slice(node)).endpoints[0].uid == ""


def test_slices_are_put_together_and_what_is_in_two_of_them_is_there_once() -> None:
    first = endpoint_slice(endpoint("10.0.0.1", "a"), endpoint("10.0.0.2", "b"), name="one")
    leaving = endpoint("10.0.0.2", "b", ready=False, terminating=True)
    second = endpoint_slice(leaving, endpoint("10.0.0.3", "c"), name="two")
    found = read(first, second).endpoints
    assert [(each.uid, each.leaving) for each in found] == [("a", False), ("b", True), ("c", False)]
    assert read(second, first).endpoints == found


def test_a_pod_with_addresses_of_both_kinds_is_one_replica() -> None:
    four = endpoint_slice(endpoint("10.0.0.1", "a"), name="z4")
    six = endpoint_slice(endpoint("fd00::1", "a"), endpoint("fd00::2", "b"), name="a6", family="IPv6")
    assert [each.url for each in read(six, four).endpoints] == ["http://10.0.0.1:8000", "http://[fd00::2]:8000"]


def test_what_is_said_of_all_of_them() -> None:
    source = SliceSource("default", "vllm", "http", "http", Traits(("all",), 2.0))
    labels = {"warmroute/model": "llama", "warmroute/ranks": "2"}
    found = read(
        endpoint_slice(endpoint(), name="one", labels=labels, annotations={"warmroute/weight": "no"}),
        endpoint_slice(endpoint("10.0.0.2", "b"), name="two"),
        source=source,
    )
    assert [(each.url[-6:], each.rank, each.models, each.weight) for each in found.endpoints] == [
        ("1:8000", 0, ("llama",), 2.0), ("1:8000", 1, ("llama",), 2.0), ("2:8000", None, ("all",), 2.0),
    ]  # fmt: skip
    assert found.remarks == [
        "EndpointSlice one: warmroute/weight: weight must be a number above 0 and up to 1000, not 'no'"
    ]


HTTP, METRICS = port(8000, "http"), port(9090, "metrics")
BOTH = "http (8000), metrics (9090)"


@pytest.mark.parametrize(
    ("ports", "wanted", "expected"),
    [
        ([HTTP], None, (8000, "http", "")),
        ([HTTP, METRICS], "metrics", (9090, "http", "")),
        ([HTTP, METRICS], 8000, (8000, "http", "")),
        ([HTTP, METRICS], None, (0, "http", f"several ports, and the source names none; it has {BOTH}")),
        ([HTTP], 80, (0, "http", "no port 80; it has http (8000)")),
        ([HTTP], "api", (0, "http", "no port api; it has http (8000)")),
        ([], None, (0, "http", "no port; it has none")),
        ([], "http", (0, "http", "no port http; it has none")),
        ([], 8000, (8000, "http", "")),
        ([port(None, "")], 8000, (8000, "http", "")),
        ([HTTP, port(53, "dns", protocol="UDP")], None, (8000, "http", "")),
        ([HTTP, port(8000, "again")], None, (8000, "http", "")),
        ([port(8443, "", appProtocol="https")], None, (8443, "https", "")),
        ([port(8443, "", appProtocol="kubernetes.io/h2c")], None, (8443, "http", "")),
    ],
)
def test_which_port(ports: list[dict[str, Any]], wanted: Port, expected: tuple[int, str, str]) -> None:
    assert choose_port([msgspec.convert(each, SlicePort) for each in ports], wanted, "http") == expected


def test_a_port_that_is_not_there_is_told_for_each_slice_that_has_endpoints() -> None:
    source = SliceSource("default", "vllm", 80)
    found = read(endpoint_slice(endpoint(), name="one"), endpoint_slice(name="two"), source=source)
    assert found == Reading([], ["EndpointSlice one: no port 80; it has http (8000)"])


ENDPOINTS = st.builds(
    endpoint,
    st.integers(1, 4).map("10.0.0.{}".format),
    st.none() | st.integers(0, 3).map(str),
    ready=st.none() | st.booleans(),
    serving=st.none() | st.booleans(),
    terminating=st.none() | st.booleans(),
)


@given(st.lists(st.lists(ENDPOINTS, max_size=4), max_size=4), st.randoms())
def test_how_endpoints_are_spread_over_slices_says_nothing(
    groups: list[list[dict[str, Any]]], chance: random.Random
) -> None:
    found = read(*(endpoint_slice(*group, name=str(number)) for number, group in enumerate(groups)))
    everything = [each for group in groups for each in group]
    chance.shuffle(everything)
    once, twice = endpoint_slice(*everything, name="all"), endpoint_slice(*everything[:3], name="again")
    assert read(once, twice) == read(twice, once) == found
    assert len({each.identity for each in found.endpoints}) == len(found.endpoints)
