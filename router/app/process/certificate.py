"""The client port's certificate, read again while it serves. Connections that are open keep the one they began with."""

from __future__ import annotations

import ssl
from pathlib import Path

from router.app.settings.model import Settings
from router.app.settings.sources import ConfigError


def files(settings: Settings) -> list[Path]:
    """Return the files that make up the certificate; empty without TLS."""
    return [file for file in (settings.ssl_certfile, settings.ssl_keyfile) if file is not None]


def check(settings: Settings) -> None:
    """See whether the files can be used. Raises ConfigError."""
    load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), settings)


def load(context: ssl.SSLContext, settings: Settings) -> None:
    """Serve new connections of `context` with the present files; nothing happens without TLS. Raises ConfigError.

    A context that files without a fitting key were loaded into serves nobody any more: `check` first.
    """
    if settings.ssl_certfile is None:
        return
    password = settings.ssl_keyfile_password
    words = "" if password is None else password.get_secret_value()  # None would ask on the terminal
    try:
        context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile, words)
    except (OSError, ValueError) as error:
        raise ConfigError(f"TLS: {error}") from None
