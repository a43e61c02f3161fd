"""What is asked of the overlays is asked of the chart, with other values too."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from router.adapters.discovery.description import PodSource, SliceSource, parse
from tests.deploy.helm.chart import NAMESPACE, template
from tests.deploy.kubernetes import rendered, test_network, test_pods, test_references
from tests.deploy.kubernetes.network_policies import OUTSIDE, Place
from tests.deploy.kubernetes.rendered import Object, of_kind
from tests.deploy.kubernetes.valid import check

Question = Callable[..., None]

EVERYTHING: dict[str, Any] = {
    "settings": {"drain_s": 20.5, "grace_s": 600, "index_bytes": "512MiB", "session_header": ["x-a", "x-b"]},
    "imagePullSecrets": [{"name": "registry"}],
    "image": {"pullPolicy": "Always"},
    "clientKeys": {"existingSecret": "warmroute-keys"},
    "redis": {"image": {"pullPolicy": "Always"}},
    "autoscaling": {"enabled": False},
    "replicas": 3,
    "service": {"type": "LoadBalancer", "annotations": {"a.example/internal": "true"}},
    "ingress": {
        "enabled": True, "className": "nginx", "host": "llm.example", "tlsSecret": "llm-tls",
        "annotations": {"nginx.ingress.kubernetes.io/proxy-buffering": "off"},
    },
    "networkPolicy": {"extraEgress": [{"to": [{"ipBlock": {"cidr": "10.20.0.0/16"}}], "ports": [{"port": 4318}]}]},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "serviceAccount": {"annotations": {"a.example/role": "router"}},
    "extraEnv": [{"name": "WARMROUTE_LOG_LEVEL", "value": "debug"}],
    "podAnnotations": {"a.example/b": "true"},
    "podLabels": {"team": "a"},
    "priorityClassName": "high",
    "nodeSelector": {"pool": "cpu"},
    "tolerations": [{"key": "pool", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpread": {"keys": ["kubernetes.io/hostname"], "whenUnsatisfiable": "DoNotSchedule"},
}  # fmt: skip
"""Every value that can be another without leading elsewhere."""

NAMES: dict[str, Any] = {
    "settings": {"discover": ["dns:vllm.elsewhere:8000"], "redis": "redis://redis.example:6379/0"},
    "redis": {"enabled": False},
    "networkPolicy": {"engines": False},
}
"""No API server is asked, and Redis is one's own."""

NOT_OF_NAMES = {
    # They look for the account's rights, and for the Valkey, the engines' policy and the source of the overlays.
    "test_the_account_has_the_rights_that_its_source_asks_for_and_no_other",
    "test_only_routers_see_a_token_of_the_api_server",
    "test_flags_variables_and_files_are_settings",
    "test_a_router_reaches_what_it_needs",
    "test_engines_hear_routers_and_prometheus_alone",
    "test_redis_hears_routers_alone_and_says_nothing",
}
CASES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "default": ({}, set()),
    "everything": (EVERYTHING, set()),
    "names": (NAMES, NOT_OF_NAMES),
}
"""Name -> values, and questions that they are not asked."""


def questions(module: ModuleType) -> dict[str, Question]:
    """Tests that are told an overlay's name."""
    known = {"name", "tmp_path", "monkeypatch"}
    tests = {name: test for name, test in vars(module).items() if name.startswith("test_")}
    return {name: test for name, test in tests.items() if "name" in (given := inspect.signature(test).parameters)
            and given.keys() <= known}  # fmt: skip


QUESTIONS = {**questions(test_pods), **questions(test_references), **questions(test_network)}


def put_in_place_of_the_overlay(objects: tuple[Object, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the questions find these objects, whichever overlay they ask for."""
    monkeypatch.setattr(rendered, "rendered", lambda _: objects)


ASKED = [(case, name) for case, (_, without) in CASES.items() for name in QUESTIONS if name not in without]


@pytest.mark.parametrize(("case", "question"), ASKED)
def test_what_holds_for_the_overlay(
    case: str, question: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in_place_of_the_overlay(template(CASES[case][0]), monkeypatch)
    given: dict[str, Any] = {"name": "service", "tmp_path": tmp_path, "monkeypatch": monkeypatch}
    ask = QUESTIONS[question]
    ask(**{name: given[name] for name in inspect.signature(ask).parameters})


def test_there_is_something_to_ask() -> None:
    assert len(QUESTIONS) > 30
    assert QUESTIONS.keys() >= NOT_OF_NAMES


@pytest.mark.parametrize("case", CASES)
def test_every_object_is_valid_and_in_the_namespace(case: str) -> None:
    for thing in template(CASES[case][0]):
        check(thing)
        assert thing["metadata"]["namespace"] == NAMESPACE


def test_a_release_of_another_name_has_other_names_and_nothing_else() -> None:
    other = yaml.safe_dump_all(template({}, "chat")).replace("chat-warmroute", "warmroute")
    assert other.count("app.kubernetes.io/instance: chat\n") > 20
    renamed = other.replace("app.kubernetes.io/instance: chat\n", "app.kubernetes.io/instance: warmroute\n")
    assert list(yaml.safe_load_all(renamed)) == list(template({}))


def test_two_releases_in_a_namespace_select_their_own_pods_alone() -> None:
    one, other = (of_kind(template({}, name), "Deployment").values() for name in ("warmroute", "chat"))
    for left in one:
        for right in other:
            labels = right["spec"]["template"]["metadata"]["labels"]
            assert not rendered.selects(left["spec"]["selector"]["matchLabels"], labels)


# Where engines are elsewhere


SOURCES = [
    "kubernetes:./vllm:8000", "kubernetes:elsewhere/vllm:http", "kubernetes-pods:third?selector=app=vllm&port=8000",
    "kubernetes-pods:.?selector=app=vllm&port=http", "dns:vllm.fourth:8000",
]  # fmt: skip


def test_rights_are_those_that_the_sources_ask_for() -> None:
    objects = template({"settings": {"discover": SOURCES}})
    needed = set()
    for source in map(parse, SOURCES):
        if isinstance(source, SliceSource | PodSource):
            what = "endpointslices" if isinstance(source, SliceSource) else "pods"
            needed.add((what, source.namespace or NAMESPACE))
    assert len(needed) == 4
    for kind in ("Role", "RoleBinding"):
        found = {(each["metadata"]["name"].removeprefix("warmroute-"), each["metadata"]["namespace"])
                 for each in objects if each["kind"] == kind}  # fmt: skip
        assert found == needed
    for role in of_kind(objects, "Role").values():
        (rule,) = role["rules"]
        assert rule["resources"] == [role["metadata"]["name"].removeprefix("warmroute-")]
        assert rule["apiGroups"] == ["discovery.k8s.io" if rule["resources"] == ["endpointslices"] else ""]


@pytest.mark.parametrize("settings", [{"discover": ["dns:vllm:8000"]}, {"replica": ["http://gpu-1:8000"]}])
def test_a_router_that_asks_no_api_server_has_no_token_and_no_way_there(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = template({"settings": settings})
    put_in_place_of_the_overlay(objects, monkeypatch)
    assert not of_kind(objects, "Role")
    pod = of_kind(objects, "Deployment")["warmroute"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert not test_network.policies("chart").admit(test_network.router("chart"), OUTSIDE, 443)


def test_engines_in_another_namespace_are_found_and_let_routers_in(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"namespace": "engines", "service": "llama", "podLabels": {"app": "llama"}, "port": "http"}
    objects = template({"engines": values})
    put_in_place_of_the_overlay(objects, monkeypatch)
    let, router = test_network.policies("chart"), test_network.router("chart")
    engine = Place("engines", {"app": "llama"}, ports={"http": 8000})
    assert let.admit(router, engine, 8000)
    assert let.admit(test_network.PROMETHEUS, engine, 8000)
    assert not let.admit(test_network.NEIGHBOUR, engine, 8000)
    assert not let.admit(Place("engines"), engine, 8000)
    assert not let.admit(router, Place(NAMESPACE, {"app": "llama"}, ports={"http": 8000}), 8000)
    assert [each["metadata"]["namespace"] for each in objects if each["kind"] == "Role"] == ["engines"]
    text = of_kind(objects, "ConfigMap")["warmroute"]["data"]["warmroute.toml"]
    assert 'discover = ["kubernetes:engines/llama:http"]' in text


def test_another_prometheus_is_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"networkPolicy": {"prometheus": {"namespace": "seen", "podLabels": {"app": "agent"}}}}
    put_in_place_of_the_overlay(template(values), monkeypatch)
    let, target = test_network.policies("chart"), test_network.router("chart")
    assert let.admit(Place("seen", {"app": "agent"}), target, test_network.ADMIN)
    assert not let.admit(test_network.PROMETHEUS, target, test_network.ADMIN)


def test_an_account_of_ones_own_gets_the_rights() -> None:
    objects = template({"serviceAccount": {"create": False, "name": "mine"}})
    assert not of_kind(objects, "ServiceAccount")
    pod = of_kind(objects, "Deployment")["warmroute"]["spec"]["template"]["spec"]
    (binding,) = of_kind(objects, "RoleBinding").values()
    assert pod["serviceAccountName"] == binding["subjects"][0]["name"] == "mine"
    assert not of_kind(template({"rbac": {"create": False}}), "RoleBinding")
