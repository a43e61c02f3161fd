"""What is said of engines together: one that is listed twice, and differences between those that serve one model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from router.app.doctor.engines import Engine
from router.app.doctor.findings import Check, Finding, Remarks

FLEET = Remarks("fleet")


def _limit(engine: Engine, model: str) -> int | None:
    return next((card.max_model_len for card in engine.models if card.name == model), None)


def _root(engine: Engine, model: str) -> str | None:
    """Return what the weights are called; their folder may differ between machines."""
    root = next((card.root for card in engine.models if card.name == model), None)
    return root.rstrip("/").rpartition("/")[2] if root else None


_TRAITS: dict[str, tuple[Callable[[Engine, str], object], str]] = {
    "vLLM": (lambda engine, _: engine.version, "one release"),
    "prefix caching": (lambda engine, _: engine.prefix_caching, "prefix caching on"),
    "--max-model-len": (_limit, "one --max-model-len"),
    "block size": (lambda engine, _: engine.block_tokens, "one --block-size"),
    "model": (_root, "the same weights under one --served-model-name"),
}
"""Trait -> how to read it, and what all should have. KV capacity may differ: each replica's own is reckoned with."""


def check_fleet(engines: Sequence[Engine]) -> list[Finding]:
    """Return what is to be said of all engines together."""
    seen = [engine for engine in engines if engine.is_vllm]
    return [*_listed_twice(seen), *_alike(seen)]


def _listed_twice(engines: Sequence[Engine]) -> Iterator[Finding]:
    """Two addresses whose processes and counters began at the very same moment are one engine's."""
    by_identity: dict[tuple[float, ...], list[Engine]] = defaultdict(list)
    for engine in engines:
        for identity in engine.identities:
            by_identity[identity].append(engine)
    pairs = {tuple(engine.place.name for engine in same) for same in by_identity.values() if len(same) > 1}
    for names in sorted(pairs):
        yield FLEET.problem(
            Check.LISTED_TWICE,
            f"{' and '.join(names)} are one engine",
            "its cache is counted twice, and it is sent twice its share of the load",
            "give each engine one address",
        )


def _alike(engines: Sequence[Engine]) -> Iterator[Finding]:
    models = sorted({card.name for engine in engines for card in engine.models if card.parent is None})
    found = [finding for model in models for finding in _alike_for(model, engines)]
    if not found and len(engines) > 1:
        found = [FLEET.ok(Check.ALIKE, f"{len(engines)} engines: replicas of one model are alike")]
    yield from dict.fromkeys(found)


def _alike_for(model: str, engines: Sequence[Engine]) -> Iterator[Finding]:
    serving = [engine for engine in engines if any(card.name == model for card in engine.models)]
    for trait, (read, wanted) in _TRAITS.items():
        by_value: dict[object, list[str]] = defaultdict(list)
        for engine in serving:
            value = read(engine, model)
            if value is not None:
                by_value[value].append(engine.place.name)
        if len(by_value) > 1:
            yield FLEET.warning(
                Check.ALIKE,
                f"{model}: {trait} differs: {'; '.join(_who(*group) for group in by_value.items())}",
                "the same request is answered, cached and timed in more than one way",
                f"give all replicas of a model {wanted}",
            )


def _who(value: object, names: list[str]) -> str:
    shown = {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value
    return f"{shown} at {', '.join(names)}"
