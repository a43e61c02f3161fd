"""EndpointSlices -> replicas."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from router.adapters.discovery.description import Port, SliceSource
from router.adapters.discovery.endpoints import Traits, expand
from router.adapters.discovery.kubernetes.hints import hinted
from router.adapters.discovery.kubernetes.objects import EndpointSlice, Reading, SliceEndpoint, SlicePort
from router.ports import Endpoint

_FAMILIES = {"IPv4": 0, "IPv6": 1}
"""Which address is used of a pod that has both: a Service with two families has slices of each."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """One endpoint of one slice that can be used."""

    family: int
    url: str
    uid: str
    labels: tuple[tuple[str, str], ...]
    leaving: bool
    traits: Traits


def replicas_of_slices(slices: Iterable[EndpointSlice], source: SliceSource) -> Reading:
    """Return the replicas of a Service, in an order that does not depend on that of the slices.

    An endpoint may stand in several slices for a while. It is leaving if one says so, since that is never taken back.
    """
    remarks: list[str] = []
    seen: list[_Seen] = []
    for one in sorted(slices, key=lambda each: each.metadata.name):
        seen += _of_slice(one, source, remarks)
    families: dict[str, int] = {}
    for each in seen:
        families[each.uid] = min(families.get(each.uid, each.family), each.family)
    found: dict[tuple[str, str], _Seen] = {}
    for each in seen:
        if each.uid and each.family != families[each.uid]:
            continue
        known = found.get((each.url, each.uid))
        if known is None or (each.leaving and not known.leaving):
            found[each.url, each.uid] = each
    endpoints = [endpoint for _, each in sorted(found.items()) for endpoint in _replicas(each)]
    return Reading(endpoints, sorted(set(remarks)))


def _replicas(seen: _Seen) -> list[Endpoint]:
    traits = seen.traits
    engine = Endpoint(
        seen.url, seen.uid, models=traits.models, weight=traits.weight, labels=seen.labels, leaving=seen.leaving
    )
    return expand(engine, traits.ranks)


def _of_slice(one: EndpointSlice, source: SliceSource, remarks: list[str]) -> list[_Seen]:
    what = f"EndpointSlice {one.metadata.name}"
    traits, wrong = hinted(source.traits, one.metadata, what)
    remarks += wrong
    used = [endpoint for endpoint in one.endpoints or () if endpoint.addresses and _serves(endpoint)]
    if not used:
        return []
    port, scheme, problem = choose_port(one.ports or (), source.port, source.scheme)
    if problem:
        remarks.append(f"{what}: {problem}")
        return []
    family = _FAMILIES.get(one.address_type, 2)
    return [_seen(endpoint, family, scheme, port, traits) for endpoint in used]


def _seen(endpoint: SliceEndpoint, family: int, scheme: str, port: int, traits: Traits) -> _Seen:
    (address, *_) = endpoint.addresses or ("",)
    host = f"[{address}]" if ":" in address else address.lower()
    pod = endpoint.target_ref if endpoint.target_ref and endpoint.target_ref.kind == "Pod" else None
    labels = {"node": endpoint.node_name, "pod": pod and pod.name, "zone": endpoint.zone}
    terminating = bool(endpoint.conditions and endpoint.conditions.terminating)
    told = tuple((name, value) for name, value in labels.items() if value)
    return _Seen(family, f"{scheme}://{host}:{port}", pod.uid if pod else "", told, terminating, traits)


def _serves(endpoint: SliceEndpoint) -> bool:
    """Tell whether it answers requests, new ones or at least those that it has.

    `serving` is asked beside `ready`: with publishNotReadyAddresses, a pod is `ready` from its first moment on.
    """
    conditions = endpoint.conditions
    if conditions is None:
        return True
    ready = conditions.ready is not False
    serving = ready if conditions.serving is None else conditions.serving
    return serving and (ready or bool(conditions.terminating))


def choose_port(ports: Iterable[SlicePort], wanted: Port, scheme: str) -> tuple[int, str, str]:
    """Return port, scheme, and what is wrong, which is empty where they can be used."""
    usable = [port for port in ports if port.port is not None and port.protocol in (None, "TCP")]
    if not usable and isinstance(wanted, int):
        return wanted, scheme, ""  # a headless Service need not declare ports
    fitting = [port for port in usable if wanted in (None, port.port, port.name)]
    if len({port.port for port in fitting}) == 1:
        (first, *_) = fitting
        return first.port or 0, "https" if first.app_protocol == "https" else scheme, ""
    there = ", ".join(sorted({f"{port.name or 'unnamed'} ({port.port})" for port in usable})) or "none"
    problem = "several ports, and the source names none" if wanted is None and fitting else f"no port {wanted or ''}"
    return 0, scheme, f"{problem.strip()}; it has {there}"
