"""Answers that must have a form: values for a JSON schema, and what a body says about its answer's format."""

from __future__ import annotations

from typing import Any

import msgspec

from router.sim.bodies import Body
from router.sim.errors import Refusal, bad_value
from router.sim.tokenizer import answer_text

_TEXT_TOKENS = 4
_DEEPEST = 8
"""Levels of objects and lists below which a schema that refers to itself gets no more values."""
_FORMATS = {
    "date-time": "2026-01-31T12:00:00Z",
    "date": "2026-01-31",
    "time": "12:00:00Z",
    "email": "someone@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def demanded_text(body: Body, seed: int) -> str | None:
    """Return the text that a chat or completion body demands by its format or choices; None: any text will do.

    Regular expressions and grammars are not imitated.

    Raises:
        Refusal: a format without its schema, or a schema that is no JSON.
    """
    for wanted in (_format_of(body), body.get("structured_outputs")):
        if not isinstance(wanted, dict):
            continue
        choices = wanted.get("choice")
        if isinstance(choices, list) and choices:
            return str(choices[seed % len(choices)])
        schema = wanted.get("json")
        if isinstance(schema, str):
            schema = _read(schema)
        if schema is not None or wanted.get("json_object"):
            return msgspec.json.encode(value_of(seed, schema or {"type": "object"})).decode()
    return None


def _read(schema: str) -> Any:
    try:
        return msgspec.json.decode(schema)
    except ValueError:
        raise Refusal("Invalid JSON grammar specification.") from None


def _format_of(body: Body) -> Any:
    given = body.get("response_format")
    if not isinstance(given, dict):
        return None
    if given.get("type") == "json_object":
        return {"json_object": True}
    if given.get("type") != "json_schema":
        return None
    named = given.get("json_schema")
    if named is None:
        text = "When response_format type is 'json_schema', the 'json_schema' field must be provided."
        raise bad_value(text, "response_format")
    return {"json": named.get("schema") if isinstance(named, dict) else None}


def value_of(seed: int, schema: Any) -> Any:
    """Return a value that fits a JSON schema's types, choices and bounds; the same for the same seed."""
    root = schema if isinstance(schema, dict) else {}
    return _value(seed, schema, root, 0)


def _value(seed: int, schema: Any, root: Body, depth: int) -> Any:
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return None
    if "const" in schema:
        return schema["const"]
    if isinstance(choices := schema.get("enum"), list) and choices:
        return choices[seed % len(choices)]
    if (inner := _inner(schema, root)) is not None:
        return _value(seed, inner, root, depth + 1)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), None)
    if kind == "object" or "properties" in schema:
        return _object(seed, schema, root, depth)
    if kind == "array":
        return _array(seed, schema, root, depth)
    return _scalar(seed, schema, kind)


def _inner(schema: Body, root: Body) -> Any:
    """Return the schema that stands for this one: referred to, or the first of several."""
    if isinstance(pointer := schema.get("$ref"), str):
        found: Any = root
        for name in pointer.removeprefix("#").strip("/").split("/"):
            found = found.get(name) if isinstance(found, dict) and name else found
        return found
    for several in ("anyOf", "oneOf", "allOf"):
        if isinstance(found := schema.get(several), list) and found:
            return found[0]
    return None


def _object(seed: int, schema: Body, root: Body, depth: int) -> Body:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    places = enumerate(properties.items())
    return {name: _value(seed + place, kind, root, depth + 1) for place, (name, kind) in places}


def _array(seed: int, schema: Body, root: Body, depth: int) -> list[Any]:
    items = schema.get("items")
    if not isinstance(items, dict) or depth >= _DEEPEST:
        return []
    least = schema.get("minItems")
    count = max(1, least) if isinstance(least, int) else 1
    return [_value(seed + place, items, root, depth + 1) for place in range(min(count, 100))]


def _scalar(seed: int, schema: Body, kind: Any) -> Any:
    made: dict[Any, Any] = {
        "string": _FORMATS.get(str(schema.get("format"))) or answer_text(seed, _TEXT_TOKENS),
        "integer": _within(seed % 100, schema),
        "number": _within(seed % 1000 / 10, schema),
        "boolean": bool(seed & 1),
    }
    return made.get(kind) if isinstance(kind, str) else None


def _within(number: float, schema: Body) -> float:
    least, most = schema.get("minimum"), schema.get("maximum")
    if isinstance(least, int | float):
        number = max(number, least)
    return min(number, most) if isinstance(most, int | float) else number
