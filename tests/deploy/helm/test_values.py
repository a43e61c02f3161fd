"""The values: all are used, documented and typed; a mistake is refused; the settings are the router's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import router
from deploy.helm.generate import CHART, WITHHELD, schema, texts
from router.app.settings.model import Settings
from router.app.settings.sources import load
from router.app.settings.text import as_json, is_secret
from tests.contract.pages import DOCS, blocks, codes, prose, tables
from tests.deploy.helm.chart import NAMESPACE, SECRET, helm, notes, refusal, template
from tests.deploy.kubernetes.rendered import Object, of_kind
from tests.deploy.kubernetes.valid import VERSIONS, check

PAGE = DOCS / "how-to" / "helm.md"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
OPEN = {"settings"}
"""Has a page of its own: docs/reference/settings.md."""


def leaves(said: Object, path: str = "") -> Iterator[str]:
    """All values that can be given, by path."""
    for name, inner in said["properties"].items():
        whole = f"{path}.{name}".lstrip(".")
        if whole not in OPEN and inner.get("additionalProperties") is False:
            yield from leaves(inner, whole)
        elif whole != "global":
            yield whole


LEAVES = set(leaves(schema()))


def test_helm_finds_nothing_to_say() -> None:
    done = helm("lint", "--strict", CHART, values=SECRET)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARN" not in done.stdout + done.stderr


def test_its_version_is_the_routers() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == router.__version__
    assert chart["kubeVersion"] == f">={VERSIONS[0]}.0-0"


@pytest.mark.parametrize("file", texts(), ids=lambda file: file.name)
def test_what_is_generated_is_new(file: Path) -> None:
    assert file.read_text() == texts()[file], "run: make manifests"


def test_every_value_is_used_and_every_used_one_is_there() -> None:
    templates = "".join(file.read_text() for file in (CHART / "templates").iterdir())
    used = set(re.findall(r"\.Values\.([A-Za-z.]+\w)", templates))
    assert used == LEAVES


def test_every_value_is_on_the_page_and_no_other() -> None:
    listed = [value for row in _table_of_values() for value in codes(row[0])]
    assert sorted(listed) == sorted(LEAVES)


def _table_of_values() -> list[tuple[str, ...]]:
    (found,) = [rows for rows in tables(prose(PAGE)) if "`existingSecret`" in [row[0] for row in rows]]
    return found


def test_the_page_has_the_defaults() -> None:
    for names, default, _ in _table_of_values():
        shown = codes(default)
        if not shown:
            assert default in ("", "none", "see the file"), names
            continue
        assert len(shown) == len(codes(names))
        for name, text in zip(codes(names), shown, strict=True):
            value: Any = VALUES
            for key in name.split("."):
                value = value[key]
            assert yaml.safe_load(text) == value, name


# Mistakes


def test_mistakes_are_refused_by_name() -> None:
    wrong: dict[str, Any] = {
        "autoscalling": {"enabled": False},
        "image": {"tagg": "1"},
        "replicas": "two",
        "autoscaling": {"minReplicas": 0},
        "service": {"type": "Cluster"},
        "podLabels": {"team": 7},
        "settings": {"grce_s": 60, "policy": "random", "redis": "redis://:word@redis.example"},
    }
    said = refusal(SECRET | wrong)
    for part in ("autoscalling", "tagg", "/replicas", "minReplicas", "/service/type", "podLabels/team", "grce_s",
                 "/settings/policy", "/settings/redis"):  # fmt: skip
        assert part in said


def test_what_pods_need_to_end_is_needed() -> None:
    assert "drain_s" in refusal(SECRET | {"settings": {"drain_s": None}})


def test_the_secret_is_needed_and_helm_says_what_it_is() -> None:
    said = refusal({})
    assert "existingSecret is needed" in said
    assert "admin-token" in said
    assert "redis-secret" in said


def test_an_ingress_needs_a_host() -> None:
    assert "ingress.host is needed" in refusal(SECRET | {"ingress": {"enabled": True}})


def test_no_secret_is_a_value() -> None:
    known = schema()["properties"]["settings"]["properties"].keys()
    secrets = {name for name, field in Settings.model_fields.items() if is_secret(field)}
    assert known & secrets == {"redis"}
    assert known | secrets | WITHHELD == Settings.model_fields.keys()
    for name in sorted(secrets - {"redis"}):
        assert name not in (CHART / "values.yaml").read_text(), name


def test_a_part_of_another_chart_may_be_told_its_globals() -> None:
    assert template({"global": {"imageRegistry": "images.example"}}) == template({})


# Settings


def test_every_setting_can_be_given_and_the_router_reads_it(tmp_path: Path) -> None:
    defaults = Settings()
    known = schema()["properties"]["settings"]["properties"]
    given = {name: as_json(value) for name in known if (value := getattr(defaults, name)) is not None}
    # Other texts than they are by default: what TOML and JSON might not agree upon.
    odd = {
        "discover": ["kubernetes-pods:a?selector=app=vllm&port=1"], "alias": ["é\\\"=<m>&"], "grace_s": 0.5,
    }  # fmt: skip
    objects = template({"settings": given | odd, "redis": {"enabled": False}})
    file = tmp_path / "warmroute.toml"
    file.write_text(of_kind(objects, "ConfigMap")["warmroute"]["data"][file.name])
    found = load({}, file)
    assert {name for name, source in found.source.items() if source != "default"} == given.keys() | odd
    for name in given:
        expected = odd.get(name, as_json(getattr(defaults, name)))
        assert as_json(getattr(found.settings, name)) == expected


# What people read and type


def test_notes_say_where_it_is_and_what_to_do_next() -> None:
    said = notes({})
    assert f"http://warmroute.{NAMESPACE}:8080/v1" in said
    assert "kubernetes:./vllm:8000" in said
    assert "exec deployment/warmroute -- warmroute doctor" in said
    assert "can use the engines" not in said


def test_notes_warn_of_an_open_ingress() -> None:
    ingress = {"ingress": {"enabled": True, "host": "llm.example", "tlsSecret": "tls"}}
    assert "https://llm.example/v1" in notes(ingress)
    assert "can use the engines" in notes(ingress)
    assert "can use the engines" not in notes(ingress | {"clientKeys": {"existingSecret": "keys"}})


SHOWN = [block for block in blocks(PAGE) if block.language == "yaml"]


@pytest.mark.parametrize("block", SHOWN, ids=str)
def test_values_on_the_page_are_taken(block: Any) -> None:
    assert block.mark == "values.yaml"
    for thing in template(yaml.safe_load(block.text)):
        check(thing)


def test_commands_on_the_page_are_helms() -> None:
    """With `template` in place of `upgrade`, for which there is no cluster."""
    text = "".join(block.text for block in blocks(PAGE) if block.language == "sh").replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if line.startswith("helm upgrade ")]
    assert lines
    for _, _, *words in lines:
        rest = [word for word in words if word not in ("--install", "--values", "values.yaml")]
        done = helm("template", *rest, values={} if "--set" in rest else SECRET)
        assert done.returncode == 0, done.stderr
