"""Which URL the router of this place answers at, as `serve` would find it in the environment and the file.

The few settings that say so are read here in the plain cases, for the model of all settings takes 0.3 s of CPU. What is
not plain is left to that model, as is every mistake.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from router.app.health.asking import UnwellError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

PREFIX = "WARMROUTE_"
DEFAULTS: dict[str, Any] = {
    "host": "127.0.0.1",
    "port": 8080,
    "admin_host": "127.0.0.1",
    "admin_port": 9090,
    "ssl_certfile": None,
    "ssl_ca_certs": None,
}
HOSTS, PORTS = ("host", "admin_host"), ("port", "admin_port")
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - replaced, never bound


def own_url(config: str | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """Return the URL of /readyz: on the client port, or on the admin port where clients need a certificate.

    Raises UnwellError where the settings can't be used, or leave the port open.
    """
    values = plainly(config or environ.get(PREFIX + "CONFIG"), environ) or _as_serve_does(config)
    which = "admin_" if values["ssl_ca_certs"] else ""
    scheme = "https" if values["ssl_certfile"] and not which else "http"
    host, port = str(values[which + "host"]), values[which + "port"]
    if not port:
        raise UnwellError(f"{which}port is 0, any free one: give the URL that the router has printed")
    host = LOOPBACK.get(host, host)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/readyz"


def plainly(config: str | None, environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the values of DEFAULTS from file and environment; None where that takes more than to read them."""
    file = _from_file(config) if config else {}
    if file is None or any(name != name.upper() and name.upper().startswith(PREFIX) for name in environ):
        return None
    given = {name: environ[PREFIX + name.upper()] for name in DEFAULTS if environ.get(PREFIX + name.upper())}
    found = {name: _number(value) if name in PORTS else value for name, value in given.items()}
    values = DEFAULTS | file | found
    return values if all(_is_plain(name, value) for name, value in values.items()) else None


def _from_file(path: str) -> dict[str, Any] | None:
    import tomllib

    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes longer to import than this takes in all
            read = tomllib.load(file)
    except (OSError, ValueError):
        return None
    return {name: read[name] for name in DEFAULTS if name in read}


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() else None


def _is_plain(name: str, value: object) -> bool:
    if name in PORTS:
        return type(value) is int and 0 <= value <= 65535
    if value is None:
        return DEFAULTS[name] is None
    if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable() or " " in value:
        return False
    return "/" not in value or name not in HOSTS


def _as_serve_does(config: str | None) -> dict[str, Any]:
    from pathlib import Path

    from router.app.settings.sources import ConfigError, load

    try:
        settings = load({}, Path(config) if config else None).settings
    except ConfigError as error:
        raise UnwellError(error) from None
    return {name: getattr(settings, name) for name in DEFAULTS}
