"""docker-compose.yml by reading: it is a Compose file, restricts its containers, and fits what it mounts and starts."""

from __future__ import annotations

import ipaddress
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose

from router.app.settings.model import Settings
from tests.contract.pages import DOCS, ROOT
from tests.deploy.compose.project import (
    DOCKERFILE,
    FILE,
    Service,
    default_profiles,
    image_environment,
    services,
    source_of,
    variables_used,
    whole_file,
)
from tests.deploy.shipped import CONFIG, GRAFANA, PROMETHEUS

PROFILES = [[], default_profiles(), ["gpu"], ["sim", "gpu"]]
EVERY = services("sim", "gpu")
OURS = {name: service for name, service in EVERY.items() if service.image == "warmroute"}
ROUTERS = {name: service for name, service in OURS.items() if service.command == ["serve"]}
WRITES_EVERYWHERE = {"vllm-1", "vllm-2"}
"""The file says why."""

GRAFANA_FOLDER = "/var/lib/grafana/dashboards/warmroute"


def each(found: dict[str, Service]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("service", found.values(), ids=list(found))


@pytest.mark.parametrize("profiles", PROFILES, ids=str)
def test_it_is_a_compose_file(profiles: list[str]) -> None:
    """Unknown keys, units and conditions are errors of this parser."""
    text = yaml.safe_dump(whole_file() | {"services": {name: dict(it.raw) for name, it in services(*profiles).items()}})
    assert sorted(PyCompose.from_yaml(text).service_names()) == sorted(services(*profiles))


def test_the_parser_finds_mistakes() -> None:
    with pytest.raises(ValueError, match="read_onl"):
        PyCompose.from_yaml("services: {a: {image: b, read_onl: true}}")


@each(EVERY)
def test_a_container_can_do_little(service: Service) -> None:
    raw = service.raw
    assert raw["cap_drop"] == ["ALL"]
    assert raw["security_opt"] == ["no-new-privileges:true"]
    assert raw.get("read_only", False) is (service.name not in WRITES_EVERYWHERE)
    forbidden = {"privileged", "cap_add", "network_mode", "pid", "ipc", "devices", "userns_mode"}
    assert not forbidden & set(raw)
    assert not [mount for mount in service.mounts if mount.is_bind and not mount.read_only]


@each(EVERY)
def test_a_container_restarts_stops_and_logs_within_bounds(service: Service) -> None:
    assert service.raw["restart"] == "unless-stopped"
    assert service.stop_grace_s >= 10
    assert service.raw["logging"] == {"driver": "json-file", "options": {"max-size": "10m", "max-file": "3"}}
    assert {"test", "interval", "timeout", "retries", "start_period"} == set(service.raw["healthcheck"])
    if "gpu" not in service.raw.get("profiles", []):
        assert "memory" in service.raw["deploy"]["resources"]["limits"]


@each(EVERY)
def test_an_image_is_pinned(service: Service) -> None:
    _, _, tag = service.raw["image"].partition(":")
    assert re.fullmatch(r"v?\d+\.\d+\.\d+", tag), service.raw["image"]


def test_ports_are_published_to_this_machine_only_and_once() -> None:
    published = [port for service in EVERY.values() for port in service.ports]
    assert {port.address for port in published} == {"127.0.0.1"}
    assert all(ipaddress.ip_address(port.address).is_loopback for port in published)
    assert len({port.published for port in published}) == len(published) == 6


def test_our_image_is_built_here_at_its_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for service in OURS.values():
        assert service.raw["image"] == f"warmroute:{version}"
        build = service.raw["build"]
        assert (ROOT / build["context"] / build["dockerfile"]).resolve() == DOCKERFILE


@each(ROUTERS)
def test_a_router_has_time_to_stop(service: Service) -> None:
    settings = _settings(service)
    assert service.stop_grace_s >= settings.drain_s + settings.grace_s + 5


@each(ROUTERS)
def test_a_router_takes_its_environment(service: Service) -> None:
    settings = _settings(service)
    assert (settings.host, settings.port) == ("0.0.0.0", 8080)
    assert (settings.admin_host, settings.admin_port) == ("0.0.0.0", 9090)
    assert {port.target for port in service.ports} == {settings.port, settings.admin_port}
    assert settings.admin_token
    assert settings.redis_secret
    assert not settings.replica


def test_routers_differ_in_nothing_but_their_ports() -> None:
    first, second = (dict(service.raw) | {"ports": None} for service in ROUTERS.values())
    assert first == second


def test_routers_find_every_engine_and_nothing_else() -> None:
    """Whatever has the name serves on the port."""
    (source,) = _settings(ROUTERS["router-1"]).discover
    _, host, port = str(source).split(":")
    engines = {name for name, service in EVERY.items() if host in (name, *service.aliases)}
    assert engines == {"sim", "vllm-1", "vllm-2"}
    for name in engines:
        assert re.search(rf"--port[ =]{port}\b", " ".join(EVERY[name].command))


def test_every_secret_may_be_given_and_has_a_default_that_says_what_it_is() -> None:
    used = variables_used()
    secrets = {name for name in used if re.search("TOKEN|SECRET|PASSWORD", name)} - {"HF_TOKEN"}
    assert {used[name] for name in secrets} == {"warmroute-dev"}
    comment = "".join(line for line in FILE.read_text().splitlines(keepends=True) if line.startswith("#"))
    for name in (*secrets, "WARMROUTE_API_KEYS"):
        assert name in comment
    assert "warmroute-dev" not in yaml.safe_dump(whole_file(dict.fromkeys(secrets, "own")))


def test_prometheus_has_what_it_reads() -> None:
    mounts = {mount.target: source_of(mount) for mount in EVERY["prometheus"].mounts if mount.is_bind}
    config_file = mounts["/etc/prometheus/prometheus.yml"]
    assert mounts["/etc/prometheus/rules"] == PROMETHEUS / "rules"
    config, shipped = (yaml.safe_load(file.read_text()) for file in (config_file, CONFIG))
    targets = config["scrape_configs"][0]["static_configs"][0].pop("targets")
    shipped["scrape_configs"][0]["static_configs"][0].pop("targets")
    assert config == shipped, "it is the shipped file but for the targets"
    assert targets == [f"{name}:9090" for name in ROUTERS]


def test_grafana_finds_its_dashboards_and_its_prometheus() -> None:
    service = EVERY["grafana"]
    mounts = {mount.target: source_of(mount) for mount in service.mounts if mount.is_bind}
    assert mounts == {"/etc/grafana/provisioning": GRAFANA / "provisioning", GRAFANA_FOLDER: GRAFANA / "dashboards"}
    (provider,) = _provisioned("dashboards/warmroute.yml")["providers"]
    assert provider["options"]["path"] == GRAFANA_FOLDER
    (source,) = _provisioned("datasources/prometheus.yml")["datasources"]
    assert service.environment[source["url"].removeprefix("$")] == "http://prometheus:9090"
    home = Path(service.environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert str(home.parent) == GRAFANA_FOLDER
    assert json.loads((GRAFANA / "dashboards" / home.name).read_text())["uid"] == "warmroute-hits"
    assert all(isinstance(value, str) for value in service.environment.values())
    assert service.raw["healthcheck"]["test"][-1] == "http://127.0.0.1:3000/api/health"


def test_the_page_names_every_port_and_every_variable() -> None:
    page = (DOCS / "how-to" / "compose.md").read_text()
    for service in EVERY.values():
        for port in service.ports:
            assert f"http://127.0.0.1:{port.published}" in page
    used = variables_used()
    assert set(used) == set(re.findall(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE))
    for name in ("VLLM_MODEL", "VLLM_KV_OFFLOADING_GIB"):
        assert re.search(rf"^\| `{name}` \| `?{re.escape(used[name])}`? \|", page, re.MULTILINE)


@each(EVERY)
def test_named_volumes_are_declared_and_files_exist(service: Service) -> None:
    declared = whole_file()["volumes"]
    for mount in service.mounts:
        assert source_of(mount).exists() if mount.is_bind else mount.source in declared


def _provisioned(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((GRAFANA / "provisioning" / name).read_text())
    return found


def _settings(service: Service) -> Settings:
    given = image_environment() | dict(service.environment)
    values: dict[str, Any] = {name.removeprefix("WARMROUTE_").lower(): value for name, value in given.items() if value}
    return Settings(**values)
