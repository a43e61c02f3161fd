"""The manifests give the rights that the sources use, and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from router.adapters.discovery.kubernetes.cluster import Cluster
from router.adapters.discovery.kubernetes.follow import Pace
from router.adapters.discovery.source import open_source
from tests.adapters.discovery.hearing import hearing
from tests.adapters.discovery.kubernetes_objects import endpoint, endpoint_slice, pod
from tests.contract.pages import ROOT
from tests.rig.kubernetes import FakeKubernetes

RIGHTS = ROOT / "deploy" / "kubernetes" / "rights"
MANIFEST: list[dict[str, Any]] = [
    each
    for name in ("account.yaml", "endpointslices.yaml", "pods/pods.yaml")
    for each in yaml.safe_load_all((RIGHTS / name).read_text())
]

Right = tuple[str, str, str]
"""API group, resource and verb."""


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in MANIFEST if each["kind"] == kind}


def rights(role: dict[str, Any]) -> set[Right]:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize(
    ("text", "role"),
    [
        ("kubernetes:default/vllm", "warmroute-endpointslices"),
        ("kubernetes-pods:default?selector=app=vllm&port=8000", "warmroute-pods"),
    ],
)
async def test_each_role_has_what_its_source_asks_for(text: str, role: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("token")
    async with FakeKubernetes() as cluster:
        cluster.put("pods", pod())
        cluster.put("endpointslices", endpoint_slice(endpoint()))
        source = open_source(text, 5.0, cluster=lambda: Cluster(cluster.url, tmp_path), pace=Pace(3600.0))
        async with hearing(source) as heard:
            await heard.count(1)
            await cluster.watched()
        used = {(asked.group, asked.plural, asked.verb) for asked in cluster.asked}
    assert rights(of_kind("Role")[role]) == used


def test_each_role_is_bound_to_the_one_account() -> None:
    (account,) = of_kind("ServiceAccount")
    roles, bindings = of_kind("Role"), of_kind("RoleBinding")
    assert set(roles) == {binding["roleRef"]["name"] for binding in bindings.values()}
    for binding in bindings.values():
        assert binding["roleRef"] == {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": binding["metadata"]["name"],
        }  # fmt: skip
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account}]
    assert len(MANIFEST) == 1 + len(roles) + len(bindings)
