"""Request bodies from files: one, or the turns of a conversation in their order."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from router.app.settings.sources import ConfigError

STANDARD_INPUT = "-"
MAX_BYTES = 256 << 20
"""Of one file. The router refuses a body above --max-body-bytes long before; this keeps a mistake out of memory."""

_MARKS = ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"))
_UTF8_MARK = b"\xef\xbb\xbf"


class Body(NamedTuple):
    """One request body."""

    name: str
    """File, and line where the file has several."""
    data: bytes


def read_bodies(files: Iterable[str]) -> list[Body]:
    """Return the bodies of all files in order: a file has one, or one a line. ConfigError for what is no body."""
    return [body for file in files for body in _bodies(_name(file), _read(file))]


def _name(file: str) -> str:
    return "standard input" if file == STANDARD_INPUT else file


def _read(file: str) -> bytes:
    try:
        if file == STANDARD_INPUT:
            return _limited(sys.stdin.buffer, _name(file))
        with Path(file).open("rb") as opened:
            if os.fstat(opened.fileno()).st_size > MAX_BYTES:
                raise _too_long(file)
            return _limited(opened, file)
    except OSError as error:
        raise ConfigError(f"{file} can't be read: {(error.strerror or str(error)).lower()}") from None


def _limited(opened: BinaryIO, name: str) -> bytes:
    data = opened.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise _too_long(name)
    return data


def _too_long(name: str) -> ConfigError:
    return ConfigError(f"{name} has more than {MAX_BYTES >> 20} MiB: no request body is that long")


def _bodies(name: str, data: bytes) -> Iterator[Body]:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            raise ConfigError(f"{name} is {encoding}, and JSON is UTF-8")
    if data.startswith(_UTF8_MARK):
        data = data[len(_UTF8_MARK) :]
        print(f"warmroute: {name} begins with a byte order mark, which engines refuse; it is left out", file=sys.stderr)
    if not data.strip():
        raise ConfigError(f"{name} is empty")
    wrong = _wrong(data)
    lines = [(number, line) for number, line in enumerate(data.split(b"\n"), 1) if line.strip()]
    if wrong is None:
        yield Body(name, data)
    elif len(lines) > 1 and _wrong(lines[0][1]) is None:
        yield from _turns(name, lines)
    else:
        raise ConfigError(f"{name} is no request body: {wrong}")


def _turns(name: str, lines: Iterable[tuple[int, bytes]]) -> Iterator[Body]:
    for number, line in lines:
        wrong = _wrong(line)
        if wrong is not None:
            raise ConfigError(f"line {number} of {name} is no request body: {wrong}")
        yield Body(f"{name}:{number}", line)


def _wrong(data: bytes) -> str | None:
    """Return why this is not the body of a request; None for a JSON object."""
    try:
        value = json.loads(data)
    except UnicodeDecodeError as error:
        return f"not UTF-8 at byte {error.start}"
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg.lower()} in line {error.lineno}, column {error.colno}"
    except RecursionError:
        return "nested too deeply"
    return None if isinstance(value, dict) else "JSON, but no object"
