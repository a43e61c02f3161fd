"""Every pod: what it may do, what it may use, how it is probed and how it ends."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from router.app.settings.serving import ServingSettings
from tests.contract.pages import DOCS, code, codes, prose, table, tables
from tests.deploy.kubernetes.rendered import OVERLAYS, Container, Object, Workload, workloads
from tests.deploy.kubernetes.routers import SECRETS, effective, files, flags_of, probes, variables

ENDPOINTS = DOCS / "reference" / "endpoints.md"
"""Held to the code by a test of its own."""

VLLM_PORT = 8000
OTHERS_END_S = 10
"""What a process that is no router of ours takes to end, once it has nothing to do."""

KUBERNETES_GRACE_S = 30
"""What a container may count on that says nothing."""

each_overlay = pytest.mark.parametrize("name", OVERLAYS)


def routers(name: str) -> list[tuple[Workload, Container]]:
    found = [(workload, container) for workload in workloads(name) for container in workload.routers]
    assert found
    return found


# Pod Security Standards, level restricted


@each_overlay
def test_every_pod_is_restricted(name: str) -> None:
    for workload in workloads(name):
        pod = workload.pod
        shared = pod.get("securityContext", {})
        assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers"} & pod.keys()
        allowed = {"configMap", "secret", "emptyDir", "projected", "downwardAPI", "persistentVolumeClaim", "ephemeral"}
        for volume in workload.volumes.values():
            assert volume.keys() - {"name"} <= allowed, volume
        for container in workload.containers:
            own = container.spec["securityContext"]
            both = shared | own
            assert both["runAsNonRoot"] is True
            assert both["runAsUser"] > 0
            assert both["seccompProfile"]["type"] in ("RuntimeDefault", "Localhost")
            assert own["allowPrivilegeEscalation"] is False
            assert own["capabilities"] == {"drop": ["ALL"]}
            assert "privileged" not in own
            assert not any("hostPort" in port for port in container.spec.get("ports", ()))


@each_overlay
def test_every_root_is_read_only_but_vllms(name: str) -> None:
    for workload in workloads(name):
        for container in workload.containers:
            own = container.spec["securityContext"]
            assert own.get("readOnlyRootFilesystem", False) != container.image.startswith("vllm/"), container


@each_overlay
def test_every_container_says_what_it_needs_and_may_take(name: str) -> None:
    for workload in workloads(name):
        for container in workload.containers:
            said = container.spec["resources"]
            for thing in ("cpu", "memory"):
                assert 0 < amount(said["requests"][thing]) <= amount(said["limits"][thing])


def amount(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)(m|Ki|Mi|Gi)?", text).groups()  # type: ignore[union-attr]
    return float(number) * {None: 1.0, "m": 1e-3, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}[unit]


@each_overlay
def test_a_router_has_memory_for_what_its_settings_let_it_keep(name: str, tmp_path: Path) -> None:
    for workload, container in routers(name):
        settings = effective(workload, container, tmp_path).settings
        base_bytes = 150 * 2**20  # an idle router takes half of it
        needed_bytes = settings.index_bytes + settings.max_queued_bytes + base_bytes
        assert amount(container.spec["resources"]["limits"]["memory"]) >= needed_bytes


@each_overlay
def test_only_routers_see_a_token_of_the_api_server(name: str) -> None:
    for workload in workloads(name):
        automatic = workload.pod["automountServiceAccountToken"]
        assert not automatic or len(workload.routers) == len(workload.containers)
        tokens = {
            volume
            for volume, said in workload.volumes.items()
            if any("serviceAccountToken" in source for source in said.get("projected", {}).get("sources", ()))
        }
        for container in workload.containers:
            assert container.is_router or not tokens & container.mounts.keys()
            places = {container.mounts[volume] for volume in tokens & container.mounts.keys()}
            by_hand = places == {"/var/run/secrets/kubernetes.io/serviceaccount"}
            assert not container.is_router or automatic or by_hand
        assert not workload.routers or workload.pod["serviceAccountName"] == "warmroute"
        for volume in tokens:
            sources = workload.volumes[volume]["projected"]["sources"]
            (token,) = [each["serviceAccountToken"] for each in sources if "serviceAccountToken" in each]
            items = [item for each in sources for said in each.values() for item in said.get("items", ())]
            assert {token["path"], *(item["path"] for item in items)} == {"token", "ca.crt", "namespace"}


# Settings


@each_overlay
def test_flags_variables_and_files_are_settings(name: str, tmp_path: Path) -> None:
    for workload, container in routers(name):
        found = effective(workload, container, tmp_path)
        assert found.settings.discover == ("kubernetes:./vllm:8000",)
        assert found.source["discover"].startswith("file ")
        assert found.settings.redis_secret is not None
        redis = found.settings.redis
        assert redis is not None
        assert redis.get_secret_value() == "redis://warmroute-redis:6379/0"
        assert not container.env.keys() - variables(container).keys() - {"WARMROUTE_REDIS", "WARMROUTE_ENGINE_API_KEY"}


@each_overlay
def test_a_redis_of_ones_own_wins_over_the_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SECRETS, "redis-url", "rediss://:word@redis.example:6380")
    for workload, container in routers(name):
        redis = effective(workload, container, tmp_path).settings.redis
        assert redis is not None
        assert redis.get_secret_value() == "rediss://:word@redis.example:6380"


@each_overlay
def test_the_config_is_mounted_as_a_folder_whose_name_stays(name: str) -> None:
    """Else a change would never come, or come as a restart."""
    for workload, container in routers(name):
        (path,) = [word for word in container.command if word.endswith(".toml")]
        assert path in files(workload, container)
        assert not any("subPath" in mount for mount in container.spec["volumeMounts"])
        sources = [volume["configMap"]["name"] for volume in workload.volumes.values() if "configMap" in volume]
        assert {"warmroute", "warmroute-sidecar"} & set(sources)


@each_overlay
def test_ports_are_those_of_the_settings(name: str, tmp_path: Path) -> None:
    for workload, container in routers(name):
        settings = effective(workload, container, tmp_path).settings
        reached = [
            port for port, host in ((settings.port, settings.host), (settings.admin_port, settings.admin_host))
            if host == "0.0.0.0"
        ]  # fmt: skip
        assert sorted(container.ports.values()) == sorted(reached)
        assert (settings.admin_token is not None) == (settings.admin_host == "0.0.0.0")


@each_overlay
def test_commands_of_ours_exist_with_their_flags(name: str) -> None:
    for workload in workloads(name):
        for container in workload.containers:
            if container.image.startswith("warmroute:") and "command" not in container.spec:
                flags_of(*_split(container.command))


def _split(words: list[str]) -> tuple[str, list[str]]:
    return words[0], [word for word in words[1:] if not word.endswith(".toml") and word != "--config"]


# Probes


@each_overlay
def test_probes_ask_what_there_is(name: str, tmp_path: Path) -> None:
    paths = {"client": _documented("Client port: answered by the router"), "admin": _documented("Admin port")}
    for workload, container in routers(name):
        settings = effective(workload, container, tmp_path).settings
        asked = {settings.port: paths["client"], settings.admin_port: paths["admin"]}
        for kind, probe in probes(container).items():
            if "exec" in probe:
                program, command, url = probe["exec"]["command"]
                assert (program, command) == ("warmroute", "health")
                flags_of(command, [url])
                parts = urlsplit(url)
                assert parts.hostname == "127.0.0.1"
                port, path = parts.port, parts.path
            else:
                port, path = container.ports[probe["httpGet"]["port"]], probe["httpGet"]["path"]
            assert port is not None
            assert path in asked[port], kind


def _documented(heading: str) -> set[str]:
    return {code(path) for path, methods, _ in table(ENDPOINTS, heading) if "GET" in methods}


@each_overlay
def test_every_container_that_serves_is_probed(name: str) -> None:
    for workload in workloads(name):
        for container in workload.containers:
            if container.ports:
                assert probes(container).keys() == {"startupProbe", "readinessProbe", "livenessProbe"}
            if container.sidecar:
                assert "startupProbe" in probes(container), "the containers beside it would start before it listens"
            for probe in probes(container).values():
                asked = probe.get("httpGet") or probe.get("tcpSocket")
                assert asked is None or asked["port"] in container.ports


@each_overlay
def test_a_lack_of_engines_or_a_flood_restarts_no_router(name: str) -> None:
    """Both make /readyz or the client port say 503, where a restart would lose streams and help nobody."""
    for _, container in routers(name):
        for kind in ("startupProbe", "livenessProbe"):
            probe = probes(container)[kind]
            if "httpGet" in probe:
                assert probe["httpGet"] == {"path": "/livez", "port": "admin"}
            else:
                assert probe["exec"]["command"][-1].endswith("/livez")


@each_overlay
def test_no_pod_waits_for_itself_to_be_ready(name: str) -> None:
    """A router is ready when a replica is; a pod is when all its containers are."""
    for workload, container in routers(name):
        probe = probes(container).get("readinessProbe")
        beside_an_engine = VLLM_PORT in workload.ports.values()
        if probe is not None:
            assert probe["httpGet"]["path"] == ("/livez" if beside_an_engine else "/readyz")


# How they end


@each_overlay
def test_a_pod_has_the_time_that_its_containers_take(name: str, tmp_path: Path) -> None:
    for workload in workloads(name):
        needs = {container.name: _end_s(workload, container, tmp_path) for container in workload.containers}
        beside = max(needs[each.name] for each in workload.containers if not each.sidecar)
        # Sidecars are told to stop when all others have ended, the last one first.
        after = sum(needs[each.name] for each in workload.containers if each.sidecar)
        granted_s = workload.pod.get("terminationGracePeriodSeconds", KUBERNETES_GRACE_S)
        assert beside + after <= granted_s, needs
        if not workload.routers:
            continue
        assert granted_s <= beside + after + 30, "much more than it can take"


def _end_s(workload: Workload, container: Container, folder: Path) -> float:
    before_s: float = container.spec.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    if container.is_router:
        settings = effective(workload, container, folder).settings
        return before_s + settings.drain_s + settings.grace_s + 5
    if "--shutdown-timeout" in container.command:
        running_s = float(container.command[container.command.index("--shutdown-timeout") + 1])
        return before_s + running_s + OTHERS_END_S
    return before_s + (KUBERNETES_GRACE_S if any(each.sidecar for each in workload.containers) else OTHERS_END_S)


@each_overlay
def test_a_router_drains_by_itself_and_longer_than_it_takes_to_be_noticed(name: str, tmp_path: Path) -> None:
    for workload, container in routers(name):
        settings = effective(workload, container, tmp_path).settings
        assert "lifecycle" not in container.spec
        if container.ports:
            probe = container.spec["readinessProbe"]
            noticed_s = probe["periodSeconds"] * probe.get("failureThreshold", 3)
            assert settings.drain_s > noticed_s
        else:
            assert settings.drain_s == ServingSettings.model_fields["drain_s"].default


@each_overlay
def test_engines_leave_when_routers_know(name: str) -> None:
    for workload in workloads(name):
        for container in workload.containers:
            if VLLM_PORT in container.ports.values():
                assert container.spec["lifecycle"]["preStop"]["sleep"]["seconds"] >= 5


def test_vllm_has_the_flags_that_matter() -> None:
    (workload,) = [each for each in workloads("beside-vllm") if each.name == "vllm"]
    (vllm,) = [each for each in workload.containers if not each.sidecar]
    (told,) = tables(prose(DOCS / "how-to" / "vllm-flags.md"))
    known = {word for row in told for piece in codes(row[0]) for word in piece.split() if word.startswith("--")}
    used = {word for word in vllm.command if word.startswith("--")}
    assert used - known == {"--model", "--port"}
    assert {"--enable-prompt-tokens-details", "--shutdown-timeout"} <= used
    assert vllm.command[vllm.command.index("--port") + 1] == str(VLLM_PORT)
    said: Object = vllm.spec["resources"]
    assert said["requests"]["nvidia.com/gpu"] == said["limits"]["nvidia.com/gpu"] == "1"
