"""What `warmroute check-config` prints: the effective settings, where each came from and how it is changed."""

import json

from rich import box
from rich.console import Console
from rich.table import Table

from router.app.settings.model import Settings
from router.app.settings.sources import Effective
from router.app.settings.text import about, as_json, shown


def print_settings(effective: Effective, console: Console, as_json_text: bool) -> None:
    """A table on a terminal, aligned plain lines when piped, JSON when asked for."""
    if as_json_text:
        console.out(_json(effective), highlight=False)
    elif console.is_terminal:
        console.print(_table(effective))
    else:
        console.out(_lines(effective), highlight=False)


def _rows(effective: Effective) -> list[tuple[str, str, str, str]]:
    settings = effective.settings
    return [(name, shown(getattr(settings, name)), _change(name), source) for name, source in effective.source.items()]


def _change(name: str) -> str:
    """What it takes to give it another value."""
    return "reload" if about(Settings.model_fields[name]).live else "restart"


def _table(effective: Effective) -> Table:
    table = Table("setting", "value", "changed by", "source", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, value, change, source in _rows(effective):
        table.add_row(name, value.replace(",", "\n"), change, source, style="dim" if source == "default" else "bold")
    return table


def _lines(effective: Effective) -> str:
    rows = _rows(effective)
    name_width = max(len(row[0]) for row in rows)
    value_width = max(len(row[1]) for row in rows)
    return "\n".join(
        f"{name:<{name_width}}  {value:<{value_width}}  {change:<7}  {source}" for name, value, change, source in rows
    )


def _json(effective: Effective) -> str:
    rows = {
        name: {"value": as_json(getattr(effective.settings, name)), "changed_by": _change(name), "source": source}
        for name, source in effective.source.items()
    }
    return json.dumps(rows, indent=2)
