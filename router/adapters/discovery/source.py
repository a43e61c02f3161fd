"""Opens a source of replicas. What a kind of source needs is imported with the first source of that kind."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from router.adapters.discovery.description import (
    FileSource,
    NameSource,
    PodSource,
    ServiceRecords,
    SliceSource,
    parse,
)
from router.adapters.discovery.polled import Polled
from router.ports import Discovery

if TYPE_CHECKING:
    from router.adapters.discovery.dns_names import Resolvers
    from router.adapters.discovery.kubernetes.cluster import Cluster
    from router.adapters.discovery.kubernetes.follow import Pace

INTERVALS_A_LIST = 12
"""A watch tells of changes as they happen, so a list has only to heal what it missed: once a minute by default."""


def open_source(
    text: str,
    interval_s: float,
    resolvers: Resolvers | None = None,
    cluster: Callable[[], Cluster] | None = None,
    pace: Pace | None = None,
) -> Discovery:
    """Open a source by its text. ValueError as `description.parse`.

    `interval_s`: between two looks at a source that tells nothing by itself; `pace` for Kubernetes follows from it,
    unless it is given. `resolvers` and `cluster` say whom to ask, instead of those that this machine is told of.
    Nothing is read, connected or started before its `endpoints` are asked for.
    """
    source = parse(text)
    match source:
        case FileSource():
            from router.adapters.discovery.replica_file import LOOK_S, ReplicaFile

            return Polled(str(source), ReplicaFile(source.path), min(interval_s, LOOK_S))
        case NameSource() | ServiceRecords():
            return _names(source, interval_s, resolvers)
        case SliceSource() | PodSource():
            return _watched(source, interval_s, cluster, pace)


def _names(source: NameSource | ServiceRecords, interval_s: float, resolvers: Resolvers | None) -> Discovery:
    from router.adapters.discovery.dns_names import Addresses, Records, system_resolver

    asked = resolvers or system_resolver
    reader = Addresses(source, asked) if isinstance(source, NameSource) else Records(source, asked)
    return Polled(str(source), reader, interval_s)


def _watched(
    source: SliceSource | PodSource, interval_s: float, cluster: Callable[[], Cluster] | None, pace: Pace | None
) -> Discovery:
    from router.adapters.discovery.kubernetes.api import PODS, SLICES
    from router.adapters.discovery.kubernetes.cluster import own_cluster
    from router.adapters.discovery.kubernetes.follow import Pace
    from router.adapters.discovery.kubernetes.pods import replicas_of_pods
    from router.adapters.discovery.kubernetes.slices import replicas_of_slices
    from router.adapters.discovery.kubernetes.watched import Watched

    place, asked = (source.namespace, source.selector), cluster or own_cluster
    chosen = pace or Pace(INTERVALS_A_LIST * interval_s)
    if isinstance(source, PodSource):
        return Watched(str(source), PODS, place, partial(replicas_of_pods, source=source), asked, chosen)
    return Watched(str(source), SLICES, place, partial(replicas_of_slices, source=source), asked, chosen)
