"""deploy/kubernetes/gateway-api: valid for those that take it, and right for what stands behind it."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
import pytest
import yaml

from router.app.settings.model import Settings
from tests.contract.pages import DOCS, blocks, codes, table
from tests.deploy.kubernetes.rendered import PLACE, Object, kustomize, of_kind, overlay

FOLDER = PLACE / "gateway-api"
PAGE = DOCS / "how-to" / "gateway-api.md"

# The kinds, as far as they are used here: what is not named is a mistake. Gateway API v1 (standard channel of v1.2),
# Envoy Gateway gateway.envoyproxy.io/v1alpha1, from their API references.

Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
Duration = Annotated[str, msgspec.Meta(pattern=r"^([0-9]{1,5}(h|m|s|ms)){1,4}$")]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Count = Annotated[int, msgspec.Meta(ge=0, le=4294967295)]
GATEWAY_API: Any = Literal["gateway.networking.k8s.io/v1"]
ENVOY_GATEWAY: Any = Literal["gateway.envoyproxy.io/v1alpha1"]


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    pass


class Metadata(Strict):
    name: Name
    namespace: Name


class Named(Strict):
    name: Name


class Namespaces(Strict):
    from_: Literal["All", "Selector", "Same"] = msgspec.field(name="from")


class AllowedRoutes(Strict):
    namespaces: Namespaces


class Listener(Strict):
    name: Name
    protocol: Literal["HTTP", "HTTPS", "TLS", "TCP", "UDP"]
    port: Port
    allowedRoutes: AllowedRoutes


class GatewaySpec(Strict):
    gatewayClassName: Name
    listeners: list[Listener]


class Gateway(Strict):
    apiVersion: GATEWAY_API
    kind: Literal["Gateway"]
    metadata: Metadata
    spec: GatewaySpec


class Path(Strict):
    type: Literal["Exact", "PathPrefix", "RegularExpression"]
    value: Annotated[str, msgspec.Meta(pattern="^/")]


class Match(Strict):
    path: Path


class Backend(Strict):
    name: Name
    port: Port


class Timeouts(Strict):
    request: Duration
    backendRequest: Duration


class RouteRule(Strict):
    matches: list[Match]
    backendRefs: list[Backend]
    timeouts: Timeouts


class RouteSpec(Strict):
    parentRefs: list[Named]
    rules: list[RouteRule]


class HTTPRoute(Strict):
    apiVersion: GATEWAY_API
    kind: Literal["HTTPRoute"]
    metadata: Metadata
    spec: RouteSpec


class Target(Strict):
    group: Literal["gateway.networking.k8s.io"]
    kind: str
    name: Name


class TcpTimeout(Strict):
    connectTimeout: Duration


class HttpTimeout(Strict):
    requestTimeout: Duration
    connectionIdleTimeout: Duration


class Timeout(Strict):
    tcp: TcpTimeout
    http: HttpTimeout


class Retry(Strict):
    numRetries: Count


class CircuitBreaker(Strict):
    maxConnections: Count
    maxPendingRequests: Count
    maxParallelRequests: Count


class BackendTrafficPolicySpec(Strict):
    targetRefs: list[Target]
    timeout: Timeout
    retry: Retry
    circuitBreaker: CircuitBreaker


class BackendTrafficPolicy(Strict):
    apiVersion: ENVOY_GATEWAY
    kind: Literal["BackendTrafficPolicy"]
    metadata: Metadata
    spec: BackendTrafficPolicySpec


class ClientHttpTimeout(Strict):
    streamIdleTimeout: Duration


class ClientTimeout(Strict):
    http: ClientHttpTimeout


class Headers(Strict):
    requestID: Literal["PreserveOrGenerate", "Preserve", "Generate", "Disable"]


class ClientTrafficPolicySpec(Strict):
    targetRefs: list[Target]
    timeout: ClientTimeout
    headers: Headers


class ClientTrafficPolicy(Strict):
    apiVersion: ENVOY_GATEWAY
    kind: Literal["ClientTrafficPolicy"]
    metadata: Metadata
    spec: ClientTrafficPolicySpec


KINDS = {kind.__name__: kind for kind in (Gateway, HTTPRoute, BackendTrafficPolicy, ClientTrafficPolicy)}


@pytest.fixture(scope="module")
def objects() -> dict[str, Object]:
    """As the files have them, in the namespace that the kustomization gives them."""
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    found: dict[str, Object] = {}
    for file in kustomization["resources"]:
        for thing in yaml.safe_load_all((FOLDER / file).read_text()):
            thing["metadata"]["namespace"] = kustomization["namespace"]
            found[thing["kind"]] = thing
    return found


def seconds(duration: str) -> float:
    return sum(
        int(n) * {"h": 3600, "m": 60, "s": 1, "ms": 0.001}[unit] for n, unit in re.findall(r"(\d+)(h|ms|m|s)", duration)
    )


def test_every_object_is_valid(objects: dict[str, Object]) -> None:
    assert objects.keys() == KINDS.keys()
    for kind, thing in objects.items():
        msgspec.convert(thing, KINDS[kind], strict=True)


def test_it_renders_to_the_same(objects: dict[str, Object]) -> None:
    assert {thing["kind"]: thing for thing in kustomize(FOLDER)} == objects


def test_a_field_that_does_not_exist_is_found(objects: dict[str, Object]) -> None:
    thing = {**objects["HTTPRoute"], "spec": {**objects["HTTPRoute"]["spec"], "timeout": "0s"}}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(thing, HTTPRoute, strict=True)


def test_all_of_it_belongs_together(objects: dict[str, Object]) -> None:
    gateway, route = objects["Gateway"]["metadata"]["name"], objects["HTTPRoute"]
    assert [parent["name"] for parent in route["spec"]["parentRefs"]] == [gateway]
    targets = {kind: objects[kind]["spec"]["targetRefs"] for kind in ("BackendTrafficPolicy", "ClientTrafficPolicy")}
    assert [(t["kind"], t["name"]) for t in targets["BackendTrafficPolicy"]] == [
        ("HTTPRoute", route["metadata"]["name"])
    ]
    assert [(t["kind"], t["name"]) for t in targets["ClientTrafficPolicy"]] == [("Gateway", gateway)]


def test_the_route_leads_to_the_routers_service(objects: dict[str, Object]) -> None:
    service = of_kind(overlay("service"), "Service")["warmroute"]
    (rule,) = objects["HTTPRoute"]["spec"]["rules"]
    ports = [port["port"] for port in service["spec"]["ports"]]
    assert rule["backendRefs"] == [{"name": service["metadata"]["name"], "port": ports[0]}]
    assert objects["HTTPRoute"]["metadata"]["namespace"] == service["metadata"]["namespace"]
    assert ports[0] == Settings().port


def test_nothing_limits_a_generation_or_tries_it_again(objects: dict[str, Object]) -> None:
    (rule,) = objects["HTTPRoute"]["spec"]["rules"]
    policy = objects["BackendTrafficPolicy"]["spec"]
    assert [seconds(value) for value in rule["timeouts"].values()] == [0, 0]
    assert seconds(policy["timeout"]["http"]["requestTimeout"]) == 0
    assert policy["retry"] == {"numRetries": 0}


def test_times_and_numbers_fit_the_routers_own(objects: dict[str, Object]) -> None:
    settings = Settings()
    policy, client = (objects[kind]["spec"] for kind in ("BackendTrafficPolicy", "ClientTrafficPolicy"))
    assert seconds(policy["timeout"]["http"]["connectionIdleTimeout"]) < settings.keepalive_s
    silence_s = seconds(client["timeout"]["http"]["streamIdleTimeout"])
    assert silence_s > settings.max_queue_wait_s + settings.silence_timeout_s
    assert set(policy["circuitBreaker"].values()) == {2 * settings.max_connections}
    text = (FOLDER / "envoy-gateway.yaml").read_text()
    for name in ("keepalive_s", "max_queue_wait_s", "silence_timeout_s"):
        assert f"{name} ({getattr(settings, name):g})" in text


def test_the_page_shows_what_the_files_have(objects: dict[str, Object]) -> None:
    shown = [yaml.safe_load(block.text) for block in blocks(PAGE) if block.language == "yaml"]
    for thing in shown:
        whole = objects[thing["kind"]]
        assert thing["spec"] == whole["spec"], thing["kind"]
    assert {"HTTPRoute", "BackendTrafficPolicy"} <= {thing["kind"] for thing in shown}


def test_the_page_explains_every_field(objects: dict[str, Object]) -> None:
    explained = {name for row in table(PAGE, "Settings of Envoy that matter") for name in codes(row[0])}
    policy, client = (objects[kind]["spec"] for kind in ("BackendTrafficPolicy", "ClientTrafficPolicy"))
    used = {*objects["HTTPRoute"]["spec"]["rules"][0]["timeouts"], *policy["circuitBreaker"], *policy["retry"]}
    used |= {*policy["timeout"]["http"], *client["timeout"]["http"], *client["headers"]}
    assert used <= {name.rpartition(".")[2] for name in explained}
