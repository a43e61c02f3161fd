"""Bodies of the pooling routes: embeddings, pooling, classify, score, rerank; and of audio transcriptions."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec

from router.sim.bodies import Body, as_integer
from router.sim.errors import bad_value
from router.sim.forms import Choice, Label, Usage
from router.sim.plan import seed_of

DIMENSIONS = 32
"""Length of an embedding: enough to compare two, few enough to read."""
_MOST_DIMENSIONS = 8_192
_LABELS = ("LABEL_0", "LABEL_1")

Rows = Sequence[Choice]


class PoolingForm:
    """An answer that comes whole, made of one row per prompt."""

    def __init__(self, build: Callable[[Rows, Usage], Body]) -> None:
        self._build = build

    def opening(self) -> list[bytes]:
        return []

    def first(self, choices: Sequence[Choice]) -> list[bytes]:
        return []

    def more(self, choice: Choice, told: int) -> list[bytes]:
        return []

    def closing(self, choices: Sequence[Choice], usage: Usage) -> list[bytes]:
        return []

    def failed(self, message: str) -> list[bytes] | None:
        return None

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        return msgspec.json.encode(self._build(choices, usage))


def embeddings(label: Label, request: Body) -> PoolingForm:
    """/v1/embeddings, as floats or base64."""
    encoding = request.get("encoding_format") or "float"
    if encoding not in ("float", "base64"):
        raise bad_value(f"Unsupported encoding_format: {encoding}", "encoding_format")
    dimensions = as_integer(request.get("dimensions"), DIMENSIONS)
    if not 1 <= dimensions <= _MOST_DIMENSIONS:
        raise bad_value(f"dimensions must be from 1 to {_MOST_DIMENSIONS}, got {dimensions}.", "dimensions", dimensions)

    def build(rows: Rows, usage: Usage) -> Body:
        data = []
        for row in rows:
            vector = _vector(row, dimensions)
            data.append(
                {
                    "index": row.index,
                    "object": "embedding",
                    "embedding": _base64(vector) if encoding == "base64" else list(vector),
                }
            )
        return _listed(label, data, usage)

    return PoolingForm(build)


def pooling(label: Label) -> PoolingForm:
    """/pooling: one vector a prompt."""

    def build(rows: Rows, usage: Usage) -> Body:
        data = [{"index": row.index, "object": "pooling", "data": list(_vector(row, DIMENSIONS))} for row in rows]
        return _listed(label, data, usage)

    return PoolingForm(build)


def classify(label: Label) -> PoolingForm:
    """/classify: two classes."""

    def build(rows: Rows, usage: Usage) -> Body:
        data = []
        for row in rows:
            share = _share(row)
            probs = [share, 1.0 - share]
            best = _LABELS[probs.index(max(probs))]
            data.append({"index": row.index, "label": best, "probs": probs, "num_classes": len(probs)})
        return _listed(label, data, usage)

    return PoolingForm(build)


def score(label: Label) -> PoolingForm:
    """/score and /v1/score."""

    def build(rows: Rows, usage: Usage) -> Body:
        data = [{"index": row.index, "object": "score", "score": _share(row)} for row in rows]
        return _listed(label, data, usage)

    return PoolingForm(build)


def rerank(label: Label, documents: Sequence[Any], top_n: int) -> PoolingForm:
    """/rerank, /v1/rerank and /v2/rerank: best first, `top_n` of them (0: all)."""

    def build(rows: Rows, usage: Usage) -> Body:
        ranked = sorted(rows, key=_share, reverse=True)
        results = [
            {"index": row.index, "document": _document(documents[row.index]), "relevance_score": _share(row)}
            for row in ranked
        ]
        return {
            "id": label.ident,
            "model": label.model,
            "usage": {"prompt_tokens": usage.prompt_tokens, "total_tokens": usage.prompt_tokens},
            "results": results[:top_n] if top_n else results,
        }

    return PoolingForm(build)


def transcription(seconds: int) -> PoolingForm:
    """/v1/audio/transcriptions and translations."""

    def build(rows: Rows, usage: Usage) -> Body:
        text = rows[0].output.text
        return {"text": text, "usage": {"type": "duration", "seconds": seconds}}

    return PoolingForm(build)


def _listed(label: Label, data: list[Body], usage: Usage) -> Body:
    return {
        "id": label.ident,
        "object": "list",
        "created": label.created,
        "model": label.model,
        "data": data,
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "total_tokens": usage.prompt_tokens,
            "completion_tokens": 0,
            "prompt_tokens_details": None,
            "completion_tokens_details": None,
        },
    }


def _vector(row: Choice, dimensions: int) -> array[float]:
    """Return a unit vector that depends on the prompt alone."""
    chance = Random(seed_of(row.prompt, 0))
    values = [chance.gauss(0.0, 1.0) for _ in range(dimensions)]
    norm = sum(value * value for value in values) ** 0.5
    return array("f", [value / norm for value in values])


def _base64(vector: array[float]) -> str:
    return base64.b64encode(vector.tobytes()).decode()


def _share(row: Choice) -> float:
    return seed_of(row.prompt, 0) / 2**64


def _document(document: Any) -> Body:
    if isinstance(document, str):
        return {"text": document, "multi_modal": None}
    content = document.get("content", []) if isinstance(document, dict) else []
    return {"text": None, "multi_modal": content}
