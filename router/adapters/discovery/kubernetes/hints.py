"""What a Kubernetes object says of the replicas behind it, in annotations and labels of ours."""

from __future__ import annotations

from dataclasses import replace

from router.adapters.discovery.endpoints import Traits, read_ranks, read_weight
from router.adapters.discovery.kubernetes.objects import Meta

MODEL, WEIGHT, RANKS = "warmroute/model", "warmroute/weight", "warmroute/ranks"


def hinted(traits: Traits, meta: Meta, what: str) -> tuple[Traits, list[str]]:
    """Return the traits with what the object says instead, and what is wrong in that.

    An annotation goes before a label of the same name: a label can't have every value. What is wrong is left out.
    """
    said = {**(meta.labels or {}), **(meta.annotations or {})}
    remarks = []
    models = tuple(name.strip() for name in said.get(MODEL, "").split(",") if name.strip())
    if models:
        traits = replace(traits, models=models)
    try:
        if WEIGHT in said:
            traits = replace(traits, weight=read_weight(said[WEIGHT].strip()))
    except ValueError as error:
        remarks.append(f"{what}: {WEIGHT}: {error}")
    try:
        if RANKS in said:
            traits = replace(traits, ranks=read_ranks(said[RANKS].strip()))
    except ValueError as error:
        remarks.append(f"{what}: {RANKS}: {error}")
    return traits, remarks
