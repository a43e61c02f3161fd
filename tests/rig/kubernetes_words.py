"""What an API server of Kubernetes says: objects, events, errors, and which labels a selector means."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]

KINDS = {"pods": ("v1", "Pod"), "endpointslices": ("discovery.k8s.io/v1", "EndpointSlice")}
"""Plural -> apiVersion and kind."""


@dataclass(frozen=True)
class Change:
    """One entry of the history."""

    version: int
    plural: str
    before: Object | None
    now: Object
    deleted: bool = False

    def event(self, plural: str, namespace: str, selector: str) -> bytes | None:
        """The line of a watch with that selector. What does not match any more is deleted, for it."""
        if (self.plural, self.now["metadata"]["namespace"]) != (plural, namespace):
            return None
        was = self.before is not None and selects(selector, self.before)
        matches = not self.deleted and selects(selector, self.now)
        if not was and not matches:
            return None
        kind = "MODIFIED" if was and matches else "ADDED" if matches else "DELETED"
        return line({"type": kind, "object": self.now})


def selects(selector: str, thing: Object) -> bool:
    """Whether an object's labels meet all requirements of a selector."""
    labels = thing["metadata"].get("labels") or {}
    return all(_meets(part.strip(), labels) for part in re.split(r",(?![^(]*\))", selector) if part.strip())


def _meets(requirement: str, labels: dict[str, str]) -> bool:
    if found := re.fullmatch(r"(\S+) +(in|notin) *\(([^)]*)\)", requirement):
        values = [value.strip() for value in found[3].split(",")]
        return (labels.get(found[1]) in values) == (found[2] == "in")
    if requirement.startswith("!"):
        return requirement[1:] not in labels
    if found := re.fullmatch(r"([^=!]+?) *(==|!=|=) *(.*)", requirement):
        return (labels.get(found[1]) == found[3]) == (found[2] != "!=")
    return requirement in labels


def line(event: Object) -> bytes:
    return json.dumps(event).encode() + b"\n"


def bookmark(plural: str, version: int) -> bytes:
    api_version, kind = KINDS[plural]
    meta = {"resourceVersion": str(version), "creationTimestamp": None}
    return line({"type": "BOOKMARK", "object": {"kind": kind, "apiVersion": api_version, "metadata": meta}})


def status(code: int, reason: str, message: str) -> Object:
    return {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    }  # fmt: skip


def _resources(version: str, plural: str, kind: str) -> Object:
    verbs = ["get", "list", "watch"]
    one = {"name": plural, "singularName": "", "namespaced": True, "kind": kind, "verbs": verbs}
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": [one]}


_GROUP = {"groupVersion": "discovery.k8s.io/v1", "version": "v1"}
RESOURCES: dict[str, Object] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
    "/apis": {
        "kind": "APIGroupList", "apiVersion": "v1",
        "groups": [{"name": "discovery.k8s.io", "versions": [_GROUP], "preferredVersion": _GROUP}],
    },
    "/api/v1": _resources("v1", "pods", "Pod"),
    "/apis/discovery.k8s.io/v1": _resources("discovery.k8s.io/v1", "endpointslices", "EndpointSlice"),
}  # fmt: skip
"""What there is, for clients that ask for it first, as kubectl does."""
