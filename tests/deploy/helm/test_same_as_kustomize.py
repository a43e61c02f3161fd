"""The chart and deploy/kubernetes are one truth: with equal choices they render to equal objects."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.contract.pages import ROOT
from tests.deploy.helm.chart import NAMESPACE, template
from tests.deploy.kubernetes.rendered import Object, kustomize, overlay

OF_HELM = {
    "app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart",
}  # fmt: skip
"""Labels that a release's objects have beside ours. With the first one selectors keep two releases apart."""

MONITORED: dict[str, Any] = {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}
BARE: dict[str, Any] = {
    "redis": {"enabled": False},
    # What warmroute.toml says there, with the component or without.
    "settings": {"redis": "redis://warmroute-redis:6379/0"},
    "networkPolicy": {"enabled": False},
}

# Each component is on in one of these, and off in another.
CHOICES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "bare": ([], BARE),
    "monitored": (["monitoring"], BARE | MONITORED),
    "keys-and-redis": (["client-keys", "redis"], {
        "clientKeys": {"existingSecret": "warmroute-keys"}, "networkPolicy": {"enabled": False},
    }),
}  # fmt: skip


def test_it_is_the_overlay_service() -> None:
    assert comparable(template(MONITORED)) == comparable(overlay("service"))


@pytest.mark.parametrize("name", CHOICES)
def test_so_are_other_choices(name: str, tmp_path: Path) -> None:
    components, values = CHOICES[name]
    (tmp_path / "warmroute").symlink_to(ROOT)
    place = "warmroute/deploy/kubernetes"
    chosen = {
        "namespace": NAMESPACE,
        "resources": [f"{place}/base"],
        "components": [f"{place}/components/{each}" for each in (*components, "images")],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(chosen))
    assert comparable(template(values)) == comparable(tuple(kustomize(tmp_path)))


def comparable(objects: tuple[Object, ...]) -> dict[str, Object]:
    """Kind and name -> what an API server would make of the object, without what is Helm's own."""
    found = {f"{each['kind']} {each['metadata']['name']}": _comparable(each) for each in objects}
    assert len(found) == len(objects)
    return found


def _comparable(thing: Object) -> Object:
    found: Object = _plain(thing)
    # The chart names every object's application, the overlays those of which something is selected.
    found["metadata"]["labels"].pop("app.kubernetes.io/name", None)
    if found["kind"] == "Service":
        found["spec"].setdefault("type", "ClusterIP")
    if found["kind"] == "ConfigMap":
        found["data"] = {name: tomllib.loads(text) for name, text in found["data"].items()}
    return found


def _plain(thing: Any) -> Any:
    """Without Helm's labels; variables, volumes and ports by name, for kustomize puts what a component adds first."""
    if isinstance(thing, dict):
        return {key: _plain(value) for key, value in thing.items() if key not in OF_HELM}
    if not isinstance(thing, list):
        return thing
    named = all(isinstance(each, dict) and "name" in each for each in thing)
    return [_plain(each) for each in (sorted(thing, key=lambda each: each["name"]) if named else thing)]
