"""What NetworkPolicies let through, as their documentation has it: no more of it than is used here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """A pod, or an address outside of the cluster, which has no labels and no namespace."""

    namespace: str
    labels: dict[str, str] = field(default_factory=dict)
    namespace_labels: dict[str, str] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    """Its named ports."""

    @property
    def of_namespace(self) -> dict[str, str]:
        return {"kubernetes.io/metadata.name": self.namespace} | self.namespace_labels


OUTSIDE = Place("")


class Policies:
    """All policies of a cluster."""

    def __init__(self, policies: list[Object]) -> None:
        self._policies = policies

    def admit(self, source: Place, target: Place, port: int, protocol: str = "TCP") -> bool:
        """Whether a connection is let out where it begins, and in where it ends."""
        out = self._let("Egress", source, target, target, port, protocol)
        return out and self._let("Ingress", target, source, target, port, protocol)

    def _let(self, direction: str, judged: Place, other: Place, target: Place, port: int, protocol: str) -> bool:
        applying = [each for each in self._policies if direction in _types(each) and _is_for(each, judged)]
        if not applying:
            return True  # nobody has a say in it
        kind, peers = ("ingress", "from") if direction == "Ingress" else ("egress", "to")
        return any(
            _port_fits(rule.get("ports"), target, port, protocol)
            and _peer_fits(rule.get(peers), other, policy["metadata"]["namespace"])
            for policy in applying
            for rule in policy["spec"].get(kind, ())
        )


def _types(policy: Object) -> list[str]:
    types: list[str] = policy["spec"]["policyTypes"]
    return types


def _is_for(policy: Object, place: Place) -> bool:
    here = policy["metadata"]["namespace"] == place.namespace
    return here and _selects(policy["spec"]["podSelector"], place.labels)


def _selects(selector: Object, labels: dict[str, str]) -> bool:
    assert selector.keys() <= {"matchLabels"}, "the evaluator knows matchLabels only"
    chosen: dict[str, str] = selector.get("matchLabels", {})
    return chosen.items() <= labels.items()


def _port_fits(ports: list[Object] | None, target: Place, port: int, protocol: str) -> bool:
    if not ports:
        return True
    for each in ports:
        assert each.keys() <= {"port", "protocol"}
        number = target.ports.get(each["port"]) if isinstance(each["port"], str) else each["port"]
        if (number, each.get("protocol", "TCP")) == (port, protocol):
            return True
    return False


def _peer_fits(peers: list[Object] | None, other: Place, namespace: str) -> bool:
    if not peers:
        return True
    for peer in peers:
        assert peer.keys() <= {"podSelector", "namespaceSelector"}
        if other is OUTSIDE:
            continue
        if "namespaceSelector" in peer:
            there = _selects(peer["namespaceSelector"], other.of_namespace)
        else:
            there = other.namespace == namespace
        if there and _selects(peer.get("podSelector", {}), other.labels):
            return True
    return False
