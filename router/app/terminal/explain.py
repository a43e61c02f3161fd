"""`warmroute explain`: what a router would do with a request, or what each turn of a conversation keeps."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from rich.console import Console

from router.app.settings.sources import ConfigError
from router.app.terminal.admin import Admin, RefusedError
from router.app.terminal.bodies import Body, read_bodies
from router.app.terminal.explained import Explained, explained_text
from router.app.terminal.turns import as_json, steps, steps_text

KEPT, LOST = 0, 1


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """What the user asked for."""

    files: Sequence[str]
    admin: str
    path: str
    headers: Sequence[str]
    as_json: bool


def run_explain(options: ExplainOptions) -> int:
    """Explain one body by the router's word, several by comparing each with the one before; return the exit code.

    0: nothing of the history would be computed again; 1: some would. ConfigError for what can't be explained.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    headers = dict(map(_header, options.headers))
    bodies = read_bodies(options.files)
    if len(bodies) == 1:
        return asyncio.run(_ask(bodies[0], headers, options))
    if headers:
        raise ConfigError("--header is for one request that the router is asked about, not for several turns")
    return _compare(bodies, options)


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip() or not line.isprintable():
        raise ConfigError(f"{line!r} is no header: it has the form 'name: value'")
    return name.strip().lower(), value.strip()


async def _ask(body: Body, headers: dict[str, str], options: ExplainOptions) -> int:
    admin = Admin(options.admin)
    try:
        answer = await admin.explain(options.path, body.data, headers)
    finally:
        await admin.close()
    try:
        explained = msgspec.json.decode(answer, type=Explained)
    except msgspec.MsgspecError as error:
        raise RefusedError(admin.label, f"can't be understood: {error}") from None
    console = Console()
    if options.as_json:
        console.out(json.dumps(json.loads(answer), indent=2), highlight=False)
    else:
        console.print(explained_text(body.name, explained))
    return LOST if explained.loses else KEPT


def _compare(bodies: Sequence[Body], options: ExplainOptions) -> int:
    compared = steps(bodies, options.path)
    console = Console()
    if options.as_json:
        console.out(json.dumps([as_json(step) for step in compared], indent=2), highlight=False)
    else:
        console.print(steps_text(compared))
    return LOST if any(step.lost_tokens for step in compared) else KEPT
