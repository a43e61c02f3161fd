"""What the pages tell people to write renders, and is valid; what they tell them to type is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.contract.pages import DOCS, ROOT, Block, all_blocks, blocks
from tests.deploy.kubernetes.network_policies import OUTSIDE, Place, Policies
from tests.deploy.kubernetes.rendered import PLACE, Object, kustomize, of_kind, overlay
from tests.deploy.kubernetes.valid import check

PAGES = [DOCS / "how-to" / "kubernetes.md", DOCS / "how-to" / "sidecar.md"]
BLOCKS = [block for page in PAGES for block in blocks(page)]
KUSTOMIZATIONS = [block for block in BLOCKS if block.mark == "kustomization.yaml"]
OBJECTS = [block for block in BLOCKS if block.mark == "ingress.yaml"]


def rendering(block: Block, folder: Path, *patches: Object) -> list[Object]:
    """In a folder as the pages have it: this repository is in it, and what the reader has written."""
    (folder / "warmroute").symlink_to(ROOT)
    for file in ("base/warmroute.toml", "overlays/sidecar/application.yaml"):
        (folder / Path(file).name).write_text((PLACE / file).read_text())
    said = yaml.safe_load(block.text)
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(said | {"patches": [*said.get("patches", ()), *patches]}))
    return kustomize(folder)


@pytest.mark.parametrize("block", KUSTOMIZATIONS, ids=str)
def test_every_kustomization_renders_to_valid_objects(block: Block, tmp_path: Path) -> None:
    objects = rendering(block, tmp_path)
    for thing in objects:
        check(thing)
        assert thing["metadata"].get("namespace") == "llm"
    assert of_kind(tuple(objects), "Deployment")


@pytest.mark.parametrize("block", OBJECTS, ids=str)
def test_every_object_is_valid(block: Block) -> None:
    for thing in yaml.safe_load_all(block.text):
        check(thing)


def test_an_overlay_of_ones_own_changes_what_it_says(tmp_path: Path) -> None:
    objects = tuple(rendering(KUSTOMIZATIONS[0], tmp_path))
    assert of_kind(objects, "ConfigMap").keys() == {"warmroute"}, "no hash in its name"
    monitor, rule = of_kind(objects, "ServiceMonitor")["warmroute"], of_kind(objects, "PrometheusRule")["warmroute"]
    assert monitor["metadata"]["labels"]["release"] == rule["metadata"]["labels"]["release"]
    policy = of_kind(objects, "NetworkPolicy")["warmroute"]
    (from_where,) = policy["spec"]["ingress"][1]["from"]
    assert from_where["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "observability"}
    assert from_where["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "prometheus"}


def test_client_keys_are_where_the_router_looks_for_them(tmp_path: Path) -> None:
    (block,) = [each for each in KUSTOMIZATIONS if "client-keys" in each.text]
    deployment = of_kind(tuple(rendering(block, tmp_path)), "Deployment")["warmroute"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (file,) = [each["value"] for each in container["env"] if each["name"] == "WARMROUTE_API_KEYS_FILE"]
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == "keys"]
    assert file == mount["mountPath"] + "/keys.toml"


def test_the_ingress_leads_to_the_service() -> None:
    (block,) = OBJECTS
    ingress = yaml.safe_load(block.text)
    service = of_kind(overlay("service"), "Service")["warmroute"]
    (path,) = ingress["spec"]["rules"][0]["http"]["paths"]
    assert path["backend"]["service"] == {"name": "warmroute", "port": {"name": service["spec"]["ports"][0]["name"]}}
    assert ingress["metadata"]["namespace"] == service["metadata"]["namespace"]


def test_a_router_is_let_out_to_a_redis_of_ones_own(tmp_path: Path) -> None:
    (patch,) = [each.text for each in BLOCKS if each.mark == "patch.yaml"]
    block = next(each for each in KUSTOMIZATIONS if "components/network-policy" in each.text)
    told = {"target": {"kind": "NetworkPolicy", "name": "warmroute"}, "patch": patch}
    policy = of_kind(tuple(rendering(block, tmp_path, told)), "NetworkPolicy")["warmroute"]
    check(policy)
    router = Place("llm", {"app.kubernetes.io/name": "warmroute"})
    assert policy["spec"]["egress"][-1]["to"][0]["ipBlock"]
    before = overlay("service")
    assert not Policies([*of_kind(before, "NetworkPolicy").values()]).admit(router, OUTSIDE, 6379)


def test_what_kubectl_is_given_is_there() -> None:
    """On all pages: files and folders, and the objects that commands name."""
    there = {
        f"{thing['kind'].lower()}/{thing['metadata']['name']}"
        for name in ("try", "sidecar")
        for thing in overlay(name)
    }
    asked = [each for each in all_blocks() if each.language == "sh" and "kubectl" in each.text]
    assert len(asked) > 5
    for block in asked:
        for path in re.findall(r"(?:--kustomize|--filename|-k|-f)[ =](deploy/\S+)", block.text):
            assert (ROOT / path).exists(), block
        for named in re.findall(r"\b(?:deployment|service|statefulset)/[\w-]+", block.text):
            assert named in there, block
