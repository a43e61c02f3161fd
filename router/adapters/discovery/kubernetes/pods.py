"""Pods -> replicas."""

from __future__ import annotations

from collections.abc import Iterable

from router.adapters.discovery.description import PodSource
from router.adapters.discovery.endpoints import expand
from router.adapters.discovery.kubernetes.hints import hinted
from router.adapters.discovery.kubernetes.objects import Pod, Reading
from router.ports import Endpoint


def replicas_of_pods(pods: Iterable[Pod], source: PodSource) -> Reading:
    """Return the replicas in these pods, in an order that does not depend on theirs.

    A pod that is ready is a replica. It is leaving from the moment its deletion is asked for until it is ready no more.
    """
    endpoints: list[Endpoint] = []
    remarks: list[str] = []
    for pod in sorted(pods, key=lambda each: (each.metadata.name, each.metadata.uid)):
        if pod.status.phase == "Running" and pod.status.pod_ip and _is_ready(pod):
            endpoints += _replicas(pod, source, remarks)
    return Reading(endpoints, sorted(set(remarks)))


def _replicas(pod: Pod, source: PodSource, remarks: list[str]) -> list[Endpoint]:
    what = f"pod {pod.metadata.name}"
    port = _port(pod, source.port)
    if port is None:
        remarks.append(f"{what}: none of its containers has a port named {source.port}")
        return []
    traits, wrong = hinted(source.traits, pod.metadata, what)
    remarks += wrong
    address = pod.status.pod_ip or ""
    host = f"[{address}]" if ":" in address else address
    labels = {"node": pod.spec.node_name, "pod": pod.metadata.name}
    engine = Endpoint(
        f"{source.scheme}://{host}:{port}",
        pod.metadata.uid,
        models=traits.models,
        weight=traits.weight,
        labels=tuple((name, value) for name, value in labels.items() if value),
        leaving=pod.metadata.deletion_timestamp is not None,
    )
    return expand(engine, traits.ranks)


def _is_ready(pod: Pod) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions or ())


def _port(pod: Pod, wanted: int | str) -> int | None:
    """Return the number of a port. A number need not be declared: containers listen where they like."""
    if isinstance(wanted, int):
        return wanted
    ports = [port for container in pod.spec.containers or () for port in container.ports or ()]
    return next((port.container_port for port in ports if port.name == wanted), None)
