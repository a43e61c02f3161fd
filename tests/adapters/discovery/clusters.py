"""Sources of a fake Kubernetes, as tests open and change them."""

from __future__ import annotations

from collections.abc import Callable

from router.adapters.discovery.kubernetes.follow import Pace
from router.ports import Discovery
from tests.adapters.discovery.hearing import Heard
from tests.adapters.discovery.kubernetes_objects import pod
from tests.rig.kubernetes import FakeKubernetes

PODS = "kubernetes-pods:default?selector=app=vllm&port=8000"
SLICES = "kubernetes:default/vllm"
STEADY = Pace(relist_s=3600.0)
"""Nothing is listed anew because of the time."""

HASTY = Pace(relist_s=0.2, margin_s=0.2)

Opening = Callable[..., Discovery]
"""Opens a source, by its text and pace."""


def add(cluster: FakeKubernetes, number: int, **more: object) -> str:
    """Put one more pod; return its URL."""
    address = f"10.0.0.{number}"
    cluster.put("pods", pod(f"vllm-{number}", address=address, **more))  # type: ignore[arg-type]
    return url(number)


def url(number: int) -> str:
    return f"http://10.0.0.{number}:8000"


async def watching(cluster: FakeKubernetes, heard: Heard) -> None:
    """Wait until the list has come and the first watch is open."""
    await heard.count(1)
    await cluster.watched(1)
