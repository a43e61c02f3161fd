"""Every folder renders, and every object is one that an API server takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import msgspec
import pytest
import yaml

import router
from deploy.kubernetes import generate
from tests.contract.pages import DOCS, ROOT
from tests.deploy.kubernetes.rendered import (
    ALL,
    OVERLAYS,
    PLACE,
    all_workloads,
    kustomize,
    of_kind,
    overlay,
    rendered,
)
from tests.deploy.kubernetes.valid import VERSIONS, check
from tests.deploy.shipped import RULE_FILES

NAMESPACELESS = {"Namespace"}

each_folder = pytest.mark.parametrize("name", ALL)
each_overlay = pytest.mark.parametrize("name", OVERLAYS)


@each_folder
def test_every_object_is_valid(name: str) -> None:
    assert rendered(name)
    for thing in rendered(name):
        check(thing)


def test_the_validator_would_find_a_mistake() -> None:
    (deployment,) = of_kind(rendered("base"), "Deployment").values()
    spec = deployment["spec"]["template"]["spec"]
    wrong = deployment | {"spec": deployment["spec"] | {"template": {"spec": spec | {"hostnetwork": True}}}}
    with pytest.raises(kubernetes_validate.ValidationError):
        check(wrong)


@pytest.mark.parametrize("change", [{"interval": 15}, {"Interval": "15s"}, {"port": None}])
def test_the_model_of_the_operators_kinds_would_find_one(change: dict[str, Any]) -> None:
    (monitor,) = of_kind(overlay("service"), "ServiceMonitor").values()
    (endpoint,) = monitor["spec"]["endpoints"]
    wrong = monitor | {"spec": monitor["spec"] | {"endpoints": [endpoint | change]}}
    with pytest.raises(msgspec.ValidationError):
        check(wrong)


@each_overlay
def test_all_is_in_one_namespace_and_once(name: str) -> None:
    seen = set()
    for thing in overlay(name):
        if thing["kind"] in NAMESPACELESS:
            continue
        assert thing["metadata"]["namespace"] == "llm", thing
        one = (thing["kind"], thing["metadata"]["name"])
        assert one not in seen
        seen.add(one)


@each_overlay
def test_another_namespace_and_image_are_a_matter_of_a_few_lines(name: str, tmp_path: Path) -> None:
    """What docs/how-to/kubernetes.md tells people to write."""
    folder = PLACE / "overlays" / name
    (tmp_path / "overlay").symlink_to(folder)
    ours = {
        "namespace": "elsewhere",
        "resources": [str(Path("overlay"))],
        "images": [{"name": "warmroute", "newName": "images.example/warmroute", "newTag": "7"}],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(ours))
    objects = kustomize(tmp_path)
    for thing in objects:
        assert thing["metadata"].get("namespace", "elsewhere") == "elsewhere"
        for subject in thing.get("subjects", ()):
            assert subject["namespace"] == "elsewhere"
    text = yaml.safe_dump_all(objects)
    assert "image: images.example/warmroute:7\n" in text
    assert "image: warmroute" not in text


def test_each_images_name_and_version_stand_in_one_place() -> None:
    component = PLACE / "components" / "images" / "kustomization.yaml"
    images = {each["name"]: each for each in yaml.safe_load(component.read_text())["images"]}
    assert images["warmroute"]["newTag"] == router.__version__
    whole = {f"{each.get('newName', name)}:{each['newTag']}" for name, each in images.items()}
    assert {container.image for workload in all_workloads() for container in workload.containers} == whole
    for file in PLACE.rglob("*.yaml"):
        if file != component:
            assert not any(word in file.read_text() for word in whole), file


def test_images_have_the_versions_that_compose_has() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    theirs = dict(each["image"].split(":") for each in compose["services"].values())
    ours = {container.image for workload in all_workloads() for container in workload.containers}
    assert {image.split(":")[0] for image in ours} <= theirs.keys()
    assert ours <= {":".join(each) for each in theirs.items()}


def test_every_file_is_part_of_something() -> None:
    named = {PLACE / "generate.py"}
    for file in PLACE.rglob("kustomization.yaml"):
        said = yaml.safe_load(file.read_text())
        assert said["kind"] == ("Component" if file.parent.parent.name == "components" else "Kustomization")
        names = [*said.get("resources", ()), *said.get("components", ())]
        names += [each["path"] for each in said.get("patches", ()) if "path" in each]
        names += [each for made in said.get("configMapGenerator", ()) for each in made["files"]]
        named |= {file, *((file.parent / each).resolve() for each in names)}
        assert not [each for each in names if not (file.parent / each).exists()]
    there = {file for file in PLACE.rglob("*") if file.is_file() and file.suffix != ".pyc"}
    assert there <= named


# The rules of Prometheus


def test_the_prometheus_rule_is_made_from_the_rule_files() -> None:
    assert generate.FILE.read_text() == generate.text(), "run: make manifests"
    groups = [group for file in RULE_FILES for group in yaml.safe_load(file.read_text())["groups"]]
    (made,) = of_kind(overlay("service"), "PrometheusRule").values()
    assert made["spec"]["groups"] == groups


def test_the_page_promises_what_is_tested() -> None:
    page = (DOCS / "how-to" / "kubernetes.md").read_text()
    assert f"Kubernetes\n{VERSIONS[0]} or later" in page
    assert f"schemas of Kubernetes {' and '.join(VERSIONS)}" in page
