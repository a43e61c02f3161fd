"""What objects name in each other is there: selectors, ports, accounts, Secrets, ConfigMaps, volumes."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.adapters.discovery.source import open_source
from tests.contract.pages import DOCS
from tests.deploy.kubernetes.rendered import OVERLAYS, of_kind, overlay, selects, workloads
from tests.deploy.kubernetes.routers import effective

each_overlay = pytest.mark.parametrize("name", OVERLAYS)
KEYS = {"warmroute": {"admin-token", "redis-secret", "redis-url", "engine-api-key"}, "huggingface": {"token"}}
"""Of the Secrets that docs/how-to/kubernetes.md tells people to make."""

MADE_BY_KUBERNETES = {"kube-root-ca.crt"}


@each_overlay
def test_selectors_select_their_own_pods(name: str) -> None:
    for workload in workloads(name):
        assert selects(workload.of["spec"]["selector"]["matchLabels"], workload.labels)
        others = [each for each in workloads(name) if each.name != workload.name]
        assert not any(selects(workload.of["spec"]["selector"]["matchLabels"], each.labels) for each in others)
        for spread in workload.pod.get("topologySpreadConstraints", ()):
            assert selects(spread["labelSelector"]["matchLabels"], workload.labels)


@each_overlay
def test_services_lead_to_ports_that_are_there(name: str) -> None:
    for service in of_kind(overlay(name), "Service").values():
        (target,) = [each for each in workloads(name) if selects(service["spec"]["selector"], each.labels)]
        for port in service["spec"]["ports"]:
            assert target.ports[port["targetPort"]] == port["port"]


@each_overlay
def test_the_clients_service_leads_to_the_client_port_alone(name: str, tmp_path: Path) -> None:
    services = of_kind(overlay(name), "Service")
    for workload in workloads(name):
        for container in workload.routers:
            settings = effective(workload, container, tmp_path).settings
            expected = {"warmroute": settings.port, "warmroute-admin": settings.admin_port} if container.ports else {}
            for service, port in expected.items():
                assert [each["port"] for each in services[service]["spec"]["ports"]] == [port]
            assert bool(expected) == ("warmroute" in services)


@each_overlay
def test_budgets_and_the_autoscaler_are_for_workloads_that_are_there(name: str) -> None:
    there = {each.name: each for each in workloads(name)}
    for budget in of_kind(overlay(name), "PodDisruptionBudget").values():
        (of,) = [each for each in there.values() if selects(budget["spec"]["selector"]["matchLabels"], each.labels)]
        assert of.routers
        assert budget["spec"]["maxUnavailable"] == 1
    for scaler in of_kind(overlay(name), "HorizontalPodAutoscaler").values():
        target = scaler["spec"]["scaleTargetRef"]
        workload = there[target["name"]].of
        assert (target["apiVersion"], target["kind"]) == (workload["apiVersion"], workload["kind"])
        assert "replicas" not in workload["spec"], "each apply would undo what the autoscaler did"
        assert 2 <= scaler["spec"]["minReplicas"] < scaler["spec"]["maxReplicas"]
        (metric,) = scaler["spec"]["metrics"]
        (container,) = there[target["name"]].containers
        assert metric["resource"]["name"] in container.spec["resources"]["requests"]


@each_overlay
def test_the_monitor_finds_the_service_of_the_admin_port(name: str) -> None:
    for monitor in of_kind(overlay(name), "ServiceMonitor").values():
        services = of_kind(overlay(name), "Service").values()
        wanted = monitor["spec"]["selector"]["matchLabels"]
        (service,) = [each for each in services if selects(wanted, each["metadata"]["labels"])]
        assert service["metadata"]["namespace"] == monitor["metadata"]["namespace"]
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
        assert service["spec"]["publishNotReadyAddresses"] is True


@each_overlay
def test_jobs_have_names_that_the_rules_take(name: str) -> None:
    """They look for job=~"warmroute.*"."""
    for monitor in of_kind(overlay(name), "ServiceMonitor").values():
        (endpoint,) = monitor["spec"]["endpoints"]
        (relabeling,) = endpoint["relabelings"]
        assert relabeling["targetLabel"] == "job"
        assert relabeling["replacement"].startswith("warmroute")


@each_overlay
def test_mounts_volumes_secrets_and_maps_are_there(name: str) -> None:
    maps = of_kind(overlay(name), "ConfigMap").keys() | MADE_BY_KUBERNETES
    page = (DOCS / "how-to" / "kubernetes.md").read_text()
    for workload in workloads(name):
        mounted = {volume for container in workload.containers for volume in container.mounts}
        assert mounted == workload.volumes.keys()
        for container in workload.containers:
            for each in container.env.values():
                if reference := each.get("valueFrom", {}).get("secretKeyRef"):
                    assert reference["key"] in KEYS[reference["name"]]
                    assert reference["key"] in page
        named = {
            source["configMap"]["name"]
            for volume in workload.volumes.values()
            for source in (volume, *volume.get("projected", {}).get("sources", ()))
            if "configMap" in source and "name" in source["configMap"]
        }
        assert named <= maps


@each_overlay
def test_the_account_has_the_rights_that_its_source_asks_for_and_no_other(name: str, tmp_path: Path) -> None:
    """tests/adapters/discovery/test_rbac.py has which rights those are."""
    needed = set()
    for workload in workloads(name):
        for container in workload.routers:
            for source in effective(workload, container, tmp_path).settings.discover:
                open_source(source, 5.0)
                needed.add({"kubernetes": "warmroute-endpointslices"}[source.partition(":")[0]])
        used = workload.pod.get("serviceAccountName")
        assert used is None or used in of_kind(overlay(name), "ServiceAccount")
    roles, bindings = of_kind(overlay(name), "Role"), of_kind(overlay(name), "RoleBinding")
    assert set(roles) == set(bindings) == needed
    for binding in bindings.values():
        assert binding["roleRef"]["name"] in roles
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "warmroute", "namespace": "llm"}]
    assert not of_kind(overlay(name), "ClusterRole")
