"""The `model` of a body, where it stands: read from forms, and written anew where a client used another name."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

_IN_JSON = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")')
_FORM_FIELD = re.compile(rb'content-disposition:[^\r\n]*;\s*name="?model"?\s*(?:;|\r|$)', re.IGNORECASE)

MAX_TRIED = 4
"""Places of a JSON body that may hold its model: further ones are in objects within it."""

WINDOW_BYTES = 1 << 16
"""A form's model stands in its first or last bytes: between them is a file."""

MAX_BOUNDARY_BYTES = 72
"""RFC 2046 section 5.1.1: 70 characters, and two hyphens."""

_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def form_model(body: bytes) -> str:
    """Return the model that a multipart form names; empty where it names none, or is no such form."""
    at = _in_form(body)
    return "" if at is None else body[at].decode("utf-8", "replace")


def with_model(body: bytes, model: str) -> bytes:
    """Return a JSON object or a form that names another model; every other byte as it was.

    One that is nested too deeply stays as it is. Raises msgspec.MsgspecError for a body that is neither.
    """
    at = _in_form(body)
    if at is not None:
        return body[: at.start] + model.encode() + body[at.stop :]
    value = msgspec.json.encode(model)
    try:
        wanted = _decode_fields(body) | {"model": msgspec.Raw(value)}
    except RecursionError:
        return body
    for _, found in zip(range(MAX_TRIED), _IN_JSON.finditer(body), strict=False):
        changed = body[: found.start(1)] + value + body[found.end(1) :]
        if _decode_fields(changed) == wanted:
            return changed
    return msgspec.json.encode(wanted)


def _in_form(body: bytes) -> slice | None:
    """Return where the value of a form's field `model` stands."""
    delimiter = body[: body.find(b"\r\n", 0, MAX_BOUNDARY_BYTES + 2)] if body[:2] == b"--" else b""
    if len(delimiter) <= len(b"--"):
        return None
    for start, end in _windows(len(body)):
        for head, value in _parts(body, delimiter, start, end):
            stop = body.find(b"\r\n" + delimiter, value, end)
            if stop >= 0 and _FORM_FIELD.search(body, head, value):
                return slice(value, stop)
    return None


def _windows(size: int) -> list[tuple[int, int]]:
    if size <= 2 * WINDOW_BYTES:
        return [(0, size)]
    return [(0, WINDOW_BYTES), (size - WINDOW_BYTES, size)]


def _parts(body: bytes, delimiter: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Give the parts that begin in a stretch of the body: where each one's head and its value begin."""
    head = body.find(delimiter + b"\r\n", start, end)
    while head >= 0:
        head += len(delimiter)
        value = body.find(b"\r\n\r\n", head, end)
        if value < 0:
            return
        yield head, value + 4
        head = body.find(delimiter + b"\r\n", value, end)
