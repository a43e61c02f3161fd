"""What a terminal shows of advice and of a check."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from router.replay.advice.figures import cells, headings
from router.replay.advice.flags import commands, remark
from router.replay.advice.record import Data, Decision, lines_of
from router.replay.advice.triggers import Trigger

FIRED = {True: "fired", False: "holds", None: "not known"}


def print_decision(console: Console, decision: Decision) -> None:
    """Print what was measured, the table of rungs, the recommendation, and how to start it."""
    data, choice = decision.data, decision.choice
    console.print(f"{data.workload}, {data.fleet.replicas:,} x {data.fleet.kv_tokens:,} KV tokens", markup=False)
    for line in lines_of(decision):
        _say(console, f"- {line}")
    for line in decision.live_lines:
        _say(console, f"- live: {line}")
    console.print(_table(decision))
    for note in decision.notes:
        _say(console, note)
    met = "" if choice.met else " (misses the target)"
    _say(console, f"Recommended: {choice.chosen.rung.name}{met}. {choice.reason}")
    for line in commands(choice.chosen.rung, decision.model, decision.gpus):
        _say(console, f"  {line}")
    if said := remark(choice.chosen.rung):
        _say(console, said)


def print_triggers(console: Console, data: Data, triggers: Sequence[Trigger]) -> None:
    """Print every trigger, and in a sentence what to do."""
    _say(console, f"{data.recommended}, decided {data.date} for {data.workload}")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("trigger", "", "then -> now"):
        table.add_column(heading)
    for trigger in triggers:
        table.add_row(trigger.name, FIRED[trigger.fired], trigger.told)
    console.print(table)
    fired = sum(trigger.fired is True for trigger in triggers)
    _say(console, f"{fired} fired: decide again." if fired else "None fired: the decision holds.")


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, soft_wrap=True)


def _table(decision: Decision) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    first, *figures, last = headings()
    table.add_column(first, no_wrap=True)
    for heading in figures:
        table.add_column(heading, justify="right")
    table.add_column(last)
    for tried in decision.tried:
        style = "bold" if tried is decision.choice.chosen else None
        table.add_row(*cells(tried), style=style)
    return table
