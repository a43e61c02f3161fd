"""`warmroute key`: makes a client's key, and the lines that a key file has for it."""

from __future__ import annotations

import sys

from router.adapters.client_keys import KeyFileError, new_key, stanza
from router.app.settings.sources import ConfigError
from router.core.allowance import KeyLimits


def run_key(name: str, limits: tuple[int, int, int], from_stdin: bool) -> int:
    """Print the file's lines on stdout, and on stderr the key, which is kept nowhere; return the exit code.

    `limits`: requests and tokens a minute, requests at once; 0 for those of the settings. With `from_stdin` the key is
    one that exists, and is not shown. Raises ConfigError for a name that can't stand in the file, and for no key.
    """
    key = sys.stdin.readline().strip() if from_stdin else new_key()
    if not key:
        raise ConfigError("no key came on standard input")
    try:
        print(stanza(name, key, KeyLimits(*limits)))
    except KeyFileError as error:
        raise ConfigError(str(error)) from None
    if not from_stdin:
        print(f"the key of {name}, shown this once: {key}", file=sys.stderr)
    return 0
