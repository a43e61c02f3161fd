"""The kinds of the Prometheus Operator that are used here, as far as they are used: what is not named is a mistake.

From the operator's API reference, monitoring.coreos.com/v1.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Duration = Annotated[str, msgspec.Meta(pattern=r"^([0-9]+h)?([0-9]+m)?([0-9]+s)?$", min_length=2)]
LabelName = Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    pass


class Metadata(Strict):
    name: str
    namespace: str
    labels: dict[str, str]


class LabelSelector(Strict):
    matchLabels: dict[str, str]


class Relabeling(Strict):
    sourceLabels: list[LabelName]
    targetLabel: LabelName
    replacement: str


class Endpoint(Strict):
    port: str
    path: Annotated[str, msgspec.Meta(pattern="^/")]
    interval: Duration
    relabelings: list[Relabeling]


class ServiceMonitorSpec(Strict):
    selector: LabelSelector
    endpoints: list[Endpoint]


class ServiceMonitor(Strict):
    apiVersion: Literal["monitoring.coreos.com/v1"]
    kind: Literal["ServiceMonitor"]
    metadata: Metadata
    spec: ServiceMonitorSpec


class Rule(Strict):
    expr: str
    record: str | None = None
    alert: str | None = None
    for_: Duration | None = msgspec.field(default=None, name="for")
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}

    def __post_init__(self) -> None:
        if (self.record is None) == (self.alert is None):
            raise ValueError("a rule records or alerts")


class Group(Strict):
    name: str
    rules: list[Rule]
    interval: Duration | None = None


class PrometheusRuleSpec(Strict):
    groups: list[Group]


class PrometheusRule(Strict):
    apiVersion: Literal["monitoring.coreos.com/v1"]
    kind: Literal["PrometheusRule"]
    metadata: Metadata
    spec: PrometheusRuleSpec


KINDS: dict[str, type[Strict]] = {"ServiceMonitor": ServiceMonitor, "PrometheusRule": PrometheusRule}
