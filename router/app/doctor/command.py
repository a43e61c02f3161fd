"""`warmroute doctor` as a command: addresses are checked, keys come from the environment, an exit code goes back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random
from urllib.parse import urlsplit

from rich.console import Console

from router.app.doctor.examine import Extent, Unreachable, examine
from router.app.doctor.printing import print_report
from router.app.doctor.routers import Target
from router.app.settings.sources import ConfigError

CLIENT_KEY, ADMIN_TOKEN, ENGINE_KEY = "OPENAI_API_KEY", "WARMROUTE_ADMIN_TOKEN", "WARMROUTE_ENGINE_API_KEY"
"""Where keys come from: never from a flag, which every local user can read."""


def base_url(text: str, flag: str) -> str:
    """Return an address without the slash, or the /v1, that it may end in.

    Raises:
        ConfigError: it is no http or https address, or has a password in it.
    """
    parts = urlsplit(text)
    try:
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound or parts.query or parts.fragment:
        raise ConfigError(f"{flag}: {text!r} is not http://host:port or https://host:port")
    if parts.username is not None:
        raise ConfigError(f"{flag}: a key belongs into the environment, not into an address")
    return text.rstrip("/").removesuffix("/v1")


def target_of(
    router: str, admin: str, replicas: Sequence[str], model: str | None, variables: Mapping[str, str]
) -> Target:
    """Return what is to be examined.

    Raises:
        ConfigError: an address is none.
    """
    return Target(
        base_url(router, "--router"),
        base_url(admin, "--admin"),
        tuple(dict.fromkeys(base_url(url, "--replica") for url in replicas)),
        model,
        variables.get(CLIENT_KEY) or None,
        variables.get(ADMIN_TOKEN) or None,
        variables.get(ENGINE_KEY) or None,
    )


def run_doctor(target: Target, extent: Extent, as_json: bool) -> int:
    """Examine a set-up and print what was found; 0: no problem, 1: there are some.

    Raises:
        ConfigError: the router does not answer.
    """
    try:
        report = asyncio.run(examine(target, extent, Random()))
    except Unreachable as error:
        raise ConfigError(str(error)) from None
    print_report(report, Console(), as_json)
    return 0 if report.sound else 1
