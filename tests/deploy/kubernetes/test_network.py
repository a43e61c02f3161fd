"""Who reaches whom under the policies, by a small evaluator of them."""

from __future__ import annotations

import pytest

from tests.deploy.kubernetes.network_policies import OUTSIDE, Place, Policies
from tests.deploy.kubernetes.rendered import Object, of_kind, overlay, workloads

CLIENT, ADMIN, ENGINE, REDIS = 8080, 9090, 8000, 6379

NEIGHBOUR = Place("llm", {"app": "chat"})
STRANGER = Place("elsewhere", {"app": "chat"})
INGRESS = Place("ingress-nginx", {"app": "nginx"}, {"warmroute/clients": "true"})
PROMETHEUS = Place("monitoring", {"app.kubernetes.io/name": "prometheus"})
GRAFANA = Place("monitoring", {"app.kubernetes.io/name": "grafana"})
FALSE_PROMETHEUS = Place("elsewhere", {"app.kubernetes.io/name": "prometheus"})
DNS = Place("kube-system", {"k8s-app": "kube-dns"})
ENGINE_OF_ONES_OWN = Place("llm", {"app.kubernetes.io/name": "vllm"}, ports={"http": ENGINE})


def policies(*names: str) -> Policies:
    """Of overlays that are applied to one cluster, together."""
    return Policies([each for name in names for each in of_kind(overlay(name), "NetworkPolicy").values()])


def pod(name: str, workload: str) -> Place:
    (found,) = [each for each in workloads(name) if each.name == workload]
    return Place(found.namespace, found.labels, ports=found.ports)


def router(name: str) -> Place:
    (found,) = [each for each in workloads(name) if each.routers]
    return Place(found.namespace, found.labels, ports=found.ports)


def engine(name: str) -> Place:
    return ENGINE_OF_ONES_OWN if name == "service" else pod(name, "vllm")


serving = pytest.mark.parametrize("name", ["service", "try", "beside-vllm"])


@serving
def test_clients_reach_the_client_port_and_no_other(name: str) -> None:
    let, target = policies(name), router(name)
    for client in (NEIGHBOUR, INGRESS):
        assert let.admit(client, target, CLIENT)
        assert not let.admit(client, target, ADMIN)
    for stranger in (STRANGER, OUTSIDE):
        assert not let.admit(stranger, target, CLIENT)
        assert not let.admit(stranger, target, ADMIN)


@serving
def test_prometheus_reaches_the_admin_port_and_nobody_else_does(name: str) -> None:
    let, target = policies(name), router(name)
    assert let.admit(PROMETHEUS, target, ADMIN)
    assert not let.admit(PROMETHEUS, target, CLIENT)
    for other in (GRAFANA, FALSE_PROMETHEUS, DNS, engine(name) if name != "beside-vllm" else GRAFANA):
        assert not let.admit(other, target, ADMIN)


@serving
def test_a_router_reaches_what_it_needs(name: str) -> None:
    let, source = policies(name), router(name)
    assert let.admit(source, engine(name), ENGINE)
    assert let.admit(source, pod(name, "warmroute-redis"), REDIS)
    assert let.admit(source, DNS, 53, "UDP")
    assert let.admit(source, DNS, 53, "TCP")
    for port in (443, 6443):
        assert let.admit(source, OUTSIDE, port), "the API server"


@pytest.mark.parametrize("name", ["service", "try"])
def test_a_router_reaches_nothing_else(name: str) -> None:
    let, source = policies(name), router(name)
    assert not let.admit(source, NEIGHBOUR, 80)
    assert not let.admit(source, OUTSIDE, 80)
    assert not let.admit(source, engine(name), 22)
    assert not let.admit(source, STRANGER, ENGINE)
    assert not let.admit(source, Place("elsewhere", {"app.kubernetes.io/name": "vllm"}), ENGINE)


@serving
def test_engines_hear_routers_and_prometheus_alone(name: str) -> None:
    let, target = policies(name), engine(name)
    assert let.admit(router(name), target, ENGINE)
    assert let.admit(PROMETHEUS, target, ENGINE)
    for other in (NEIGHBOUR, INGRESS, STRANGER, OUTSIDE, GRAFANA):
        assert not let.admit(other, target, ENGINE)


@pytest.mark.parametrize("name", ["service", "try", "beside-vllm", "sidecar"])
def test_redis_hears_routers_alone_and_says_nothing(name: str) -> None:
    let, redis = policies(name), pod(name, "warmroute-redis")
    assert let.admit(router(name), redis, REDIS)
    for other in (NEIGHBOUR, STRANGER, OUTSIDE, PROMETHEUS):
        assert not let.admit(other, redis, REDIS)
    assert not let.admit(redis, OUTSIDE, 443)
    assert not let.admit(redis, DNS, 53, "UDP")


@pytest.mark.parametrize("beside", ["service", "try"])
def test_a_sidecar_reaches_engines_and_redis_of_a_namespace_that_has_policies(beside: str) -> None:
    let, source = policies(beside, "sidecar"), router("sidecar")
    assert let.admit(source, engine(beside), ENGINE)
    assert let.admit(source, pod(beside, "warmroute-redis"), REDIS)


# The evaluator itself


def policy(**spec: object) -> Policies:
    whole: Object = {"metadata": {"namespace": "llm"}, "spec": {"podSelector": {}, **spec}}
    return Policies([whole])


def test_who_is_selected_by_no_policy_is_free() -> None:
    assert Policies([]).admit(STRANGER, NEIGHBOUR, 1)
    assert policy(policyTypes=["Ingress"]).admit(STRANGER, STRANGER, 1)


def test_a_policy_without_rules_lets_nothing_in() -> None:
    assert not policy(policyTypes=["Ingress"]).admit(NEIGHBOUR, NEIGHBOUR, 1)
    assert not policy(policyTypes=["Egress"], egress=[]).admit(NEIGHBOUR, OUTSIDE, 1)
    assert policy(policyTypes=["Egress"], egress=[{}]).admit(NEIGHBOUR, OUTSIDE, 1)


def test_selectors_in_one_peer_must_both_hold_and_those_of_two_need_not() -> None:
    namespace = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}}}
    labels = {"podSelector": {"matchLabels": {"app": "chat"}}}
    both = policy(policyTypes=["Ingress"], ingress=[{"from": [namespace | labels]}])
    either = policy(policyTypes=["Ingress"], ingress=[{"from": [namespace, labels]}])
    other = Place("elsewhere", {"app": "other"})
    assert both.admit(STRANGER, NEIGHBOUR, 1)
    assert not both.admit(other, NEIGHBOUR, 1)
    assert either.admit(other, NEIGHBOUR, 1)
    assert either.admit(NEIGHBOUR, NEIGHBOUR, 1)
    assert not both.admit(NEIGHBOUR, NEIGHBOUR, 1)
