"""A trace from a file, packed or not."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

from router.app.settings.sources import ConfigError
from router.replay.traces.formats import Trace, read_trace
from router.replay.traces.lines import TraceError

_GZIP = b"\x1f\x8b"


def open_trace(path: Path) -> Trace:
    """Read a trace, gzip or plain by its first bytes. ConfigError says what is wrong, and in which line."""
    try:
        with path.open("rb") as file:
            packed = file.peek(2)[:2] == _GZIP
            with io.TextIOWrapper(gzip.GzipFile(fileobj=file) if packed else file, encoding="utf-8") as lines:
                return read_trace(lines)
    except TraceError as error:
        raise ConfigError(f"{path}, {error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is no text in UTF-8") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ConfigError(f"{path} is no whole gzip file: {error}") from None
    except OSError as error:
        raise ConfigError(f"can't read {path}: {error.strerror or error}") from None
