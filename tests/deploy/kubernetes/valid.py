"""Whether an API server would take an object."""

from __future__ import annotations

import json
from functools import cache

import kubernetes_validate
import msgspec

from tests.deploy.kubernetes.operator_kinds import KINDS
from tests.deploy.kubernetes.rendered import Object

VERSIONS = ("1.31", "1.37")
"""The oldest that docs/how-to/kubernetes.md promises, and the newest that the validator knows."""


def check(thing: Object) -> None:
    """Raises ValidationError, of kubernetes_validate or of msgspec, for one that it would not."""
    if thing["apiVersion"].startswith("monitoring.coreos.com/"):
        msgspec.convert(thing, KINDS[thing["kind"]], strict=True)
        return
    for version in VERSIONS:
        _check(json.dumps(thing), version)


@cache
def _check(thing: str, version: str) -> None:
    """Overlays share most of their objects, and each look takes 30 ms."""
    assert kubernetes_validate.validate(json.loads(thing), version, strict=True) == version
