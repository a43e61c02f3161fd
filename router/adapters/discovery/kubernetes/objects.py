"""The API's objects, as far as they are read. What an object may lack, or have as null, is None or empty here."""

from __future__ import annotations

from typing import Generic, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Struct, field

from router.ports import Endpoint


class Meta(Struct, frozen=True, rename="camel"):
    """What every object has."""

    name: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    """When it is to be gone: the object is being deleted."""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Thing(Struct, frozen=True):
    """Any object. A bookmark is one that has nothing but a resourceVersion."""

    metadata: Meta = Meta()


class Conditions(Struct, frozen=True):
    """States of an endpoint in a slice; None is unknown."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class TargetRef(Struct, frozen=True):
    """The object behind an address."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class SliceEndpoint(Struct, frozen=True, rename="camel"):
    """One endpoint. Its addresses mean the same; the first one is used."""

    addresses: tuple[str, ...] | None = None
    conditions: Conditions | None = None
    target_ref: TargetRef | None = None
    node_name: str | None = None
    zone: str | None = None


class SlicePort(Struct, frozen=True, rename="camel"):
    """A port that all endpoints of a slice have."""

    name: str | None = None
    port: int | None = None
    protocol: str | None = None
    app_protocol: str | None = None


class EndpointSlice(Thing, frozen=True, rename="camel"):
    """Some endpoints of a Service, all of one address family."""

    address_type: str = ""
    endpoints: tuple[SliceEndpoint, ...] | None = None
    ports: tuple[SlicePort, ...] | None = None


class ContainerPort(Struct, frozen=True, rename="camel"):
    """A port that a container declares."""

    container_port: int
    name: str | None = None
    protocol: str | None = None


class Container(Struct, frozen=True):
    """A container of a pod."""

    ports: tuple[ContainerPort, ...] | None = None


class PodSpec(Struct, frozen=True, rename="camel"):
    """What was asked for."""

    containers: tuple[Container, ...] | None = None
    node_name: str | None = None


class PodCondition(Struct, frozen=True):
    """One of a pod's conditions; `status` is True, False or Unknown, as a text."""

    type: str
    status: str


class PodStatus(Struct, frozen=True):
    """How it is."""

    phase: str | None = None
    pod_ip: str | None = field(default=None, name="podIP")
    conditions: tuple[PodCondition, ...] | None = None


class Pod(Thing, frozen=True):
    """A pod."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


T = TypeVar("T", bound=Thing)


class ListMeta(Struct, frozen=True, rename="camel"):
    """What a list says of itself."""

    resource_version: str = ""
    continue_: str | None = field(default=None, name="continue")
    """Asks for the next page; empty or missing on the last one."""


class Page(Struct, Generic[T], frozen=True):
    """A part of a list."""

    metadata: ListMeta
    items: tuple[T, ...] | None = None


class Event(Struct, frozen=True):
    """One line of a watch."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


class StatusDetails(Struct, frozen=True, rename="camel"):
    """More on an error."""

    retry_after_seconds: float | None = None


class Status(Struct, frozen=True):
    """What the API answers instead of what was asked for."""

    code: int | None = None
    message: str | None = None
    details: StatusDetails | None = None


class Reading(NamedTuple):
    """What objects say of replicas."""

    endpoints: list[Endpoint]
    remarks: list[str]
    """What could not be used, and why."""
