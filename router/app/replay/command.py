"""`warmroute replay`: runs, table, answer, files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from router.app import dashboard
from router.app.replay.asked import Asked, policies_of, sweep_of
from router.app.replay.found import Found
from router.app.replay.jobs import run_all
from router.app.replay.shown import output, print_sections, progress_bar
from router.app.replay.workloads import order_of
from router.app.settings.sources import ConfigError
from router.replay.report.page import html

_COLOURS = Path(dashboard.__file__).parent / "page" / "colours.css"


def run_replay(asked: Asked) -> int:
    """Replay and print; 0. ConfigError for what can't be replayed as asked."""
    found = _find(asked)
    console = output()
    print_sections(console, found.sections)
    for line in [*found.notes, *found.answers]:
        console.print(line, markup=False)
    _write(asked.json, lambda: json.dumps(found.as_json, indent=1) + "\n")
    _write(asked.html, lambda: html(found.page, _COLOURS.read_text(encoding="utf-8")))
    return 0


def _find(asked: Asked) -> Found:
    policies, sweep = policies_of(asked.policies), sweep_of(asked.sweep)
    ordered = order_of(asked)
    sizes = sweep.plans(ordered.plan) if sweep else [ordered.plan]
    plans = [replace(size, policy=policy) for size in sizes for policy in policies]
    _check_writable(asked.json, asked.html)
    with progress_bar(Console(stderr=True), len(plans)) as told:
        try:
            outcomes = run_all(plans, ordered.workload, asked.jobs, told)
        except ValueError as error:
            raise ConfigError(f"can't replay: {error}") from None
    return Found(asked, ordered, policies, sweep, outcomes)


def _check_writable(*paths: Path | None) -> None:
    """Sooner than after minutes of replay."""
    for path in paths:
        if path is not None and not path.parent.is_dir():
            raise ConfigError(f"can't write {path}: there is no directory {path.parent}")


def _write(path: Path | None, text: Callable[[], str]) -> None:
    if path is None:
        return
    try:
        path.write_text(text(), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"can't write {path}: {error.strerror or error}") from None
