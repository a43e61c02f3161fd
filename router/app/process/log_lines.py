"""One line of the log is one line: what somebody calls something can't begin another, or speak to a terminal."""

from __future__ import annotations

import logging

MAX_CHARACTERS = 4_000
"""Of a message. A model's name, which clients choose, may be as long as a body."""

_BREAKING = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
_ESCAPED = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _BREAKING}


class OneLine(logging.Formatter):
    """Writes a message with its control characters escaped. A traceback below it keeps its lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the record's own line."""
        return super().formatMessage(record)[:MAX_CHARACTERS].translate(_ESCAPED)
