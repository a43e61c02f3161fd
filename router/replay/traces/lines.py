"""Lines of JSON as checked records, and errors that name their line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

T = TypeVar("T")


class TraceError(ValueError):
    """A trace can't be read: its line, counted from 1, and what is wrong there."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}")
        self.line = line


def records(lines: Iterable[str], kind: type[T], first_line: int = 1) -> Iterator[tuple[int, T]]:
    """Yield each line as `kind`, with its number; blank lines are passed over.

    Raises:
        TraceError: a line is no JSON, lacks a field, or has one of another type or out of its range.
    """
    decoder = msgspec.json.Decoder(kind)
    for number, line in enumerate(lines, first_line):
        if not line.strip():
            continue
        try:
            yield number, decoder.decode(line)
        except msgspec.DecodeError as error:
            raise TraceError(number, str(error)) from None
