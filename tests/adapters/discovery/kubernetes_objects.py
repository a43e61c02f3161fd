"""Pods and EndpointSlices as an API server would show them, with much that is of no interest here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Object = dict[str, Any]


def pod(
    name: str = "vllm-0",
    uid: str = "",
    address: str | None = "10.0.0.1",
    *,
    ready: bool = True,
    phase: str = "Running",
    deleted: bool = False,
    namespace: str = "default",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    ports: Iterable[tuple[str, int]] = (("http", 8000),),
    node: str = "node-1",
) -> Object:
    meta: Object = {
        "name": name, "namespace": namespace, "uid": uid or f"uid-{name}",
        "labels": {"app": "vllm"} | (labels or {}),
        "creationTimestamp": "2026-11-30T09:00:00Z",
        "ownerReferences": [{"kind": "StatefulSet", "name": "vllm", "controller": True}],
        "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
    }  # fmt: skip
    if annotations is not None:
        meta["annotations"] = annotations
    if deleted:
        meta |= {"deletionTimestamp": "2026-11-30T10:00:00Z", "deletionGracePeriodSeconds": 30}
    declared = [{"name": label, "containerPort": number, "protocol": "TCP"} for label, number in ports]
    conditions = [
        {"type": "PodScheduled", "status": "True"},
        {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": "2026-11-30T09:01:00Z"},
    ]
    status: Object = {"phase": phase, "conditions": conditions, "hostIP": "192.168.0.1"}
    if address is not None:
        status |= {"podIP": address, "podIPs": [{"ip": address}]}
    return {
        "metadata": meta,
        "spec": {"nodeName": node, "containers": [{"name": "side"}, {"name": "vllm", "ports": declared}]},
        "status": status,
    }


def endpoint(
    address: str = "10.0.0.1",
    uid: str | None = "uid-vllm-0",
    *,
    ready: bool | None = True,
    serving: bool | None = True,
    terminating: bool | None = False,
) -> Object:
    conditions = {"ready": ready, "serving": serving, "terminating": terminating}
    one: Object = {
        "addresses": [address],
        "conditions": {name: value for name, value in conditions.items() if value is not None},
        "nodeName": "node-1",
        "zone": "zone-a",
    }
    if uid is not None:
        one["targetRef"] = {"kind": "Pod", "namespace": "default", "name": uid.removeprefix("uid-"), "uid": uid}
    return one


def port(number: int | None = 8000, name: str = "http", **more: Any) -> Object:
    return {"name": name, "port": number, "protocol": "TCP", **more}


def endpoint_slice(
    *endpoints: Object,
    name: str = "vllm-abcde",
    service: str = "vllm",
    ports: list[Object] | None = None,
    family: str = "IPv4",
    namespace: str = "default",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Object:
    meta: Object = {
        "name": name, "namespace": namespace, "uid": f"uid-{name}",
        "labels": {"kubernetes.io/service-name": service} | (labels or {}),
        "annotations": annotations,
    }  # fmt: skip
    return {
        "metadata": meta,
        "addressType": family,
        "endpoints": list(endpoints) or None,  # Go writes an empty list as null
        "ports": [port()] if ports is None else ports,
    }
