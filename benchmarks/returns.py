"""How well return times are foretold, on recorded traffic: Brier scores of what is learnt, of a constant, of the start.

usage: returns.py [--agents FILE] [--chats FILE] [--seed 1]

`--agents` takes coding agents of kv-cache-tester, `--chats` a trace in Mooncake's format, both as JSON lines, gzipped
or not. Everything is learnt as it happens. Each turn's end of the second half is asked, as soon as it is there and for
each idle time that it reaches, whether the session is back within a minute and within ten; what the trace is too short
to tell is left out. A Brier score is the mean of (chance - outcome)^2: 0 is perfect, always saying one half has 0.25.
"constant" says, for each idle time and span, what share of the first half was back; "published" never learns, but its
figures come from these very traces.
"""

from __future__ import annotations

import argparse
import gzip
from collections import defaultdict
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from math import inf
from pathlib import Path
from random import Random
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from router.core.curves import ReturnClass
from router.core.returns import Returns
from router.replay.traces.coding import read_coding_sessions
from router.replay.traces.mooncake import read_mooncake

IDLE_S = (0.0, 10.0, 60.0, 300.0)
WITHIN_S = (60.0, 600.0)
ANSWER_TOKEN_S = 0.025  # the chats have no times of answers
START_WITHIN_S = 8 * 3_600  # the agents have no common clock


class TurnEnd(NamedTuple):
    at_s: float
    session: int
    kind: ReturnClass
    away_s: float
    """inf: it never came back."""
    known_s: float
    """How long after the end the trace goes on."""


class Case(NamedTuple):
    asked: tuple[float, float]
    came: bool
    learnt: float
    published: float


def lines_of(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        yield from lines


def agents(path: Path, chance: Random) -> Iterator[TurnEnd]:
    """Recorded sessions, each begun at random within eight hours; one whose record ends is not back."""
    for number, requests in enumerate(read_coding_sessions(lines_of(path))):
        start_s, asked_for_tools = chance.random() * START_WITHIN_S, False
        nexts = [*requests[1:], None]
        for turn, (request, following) in enumerate(zip(requests, nexts, strict=False), 1):
            kind = ReturnClass.of(request.finish_reason, turn, asked_for_tools)
            asked_for_tools = kind.tool_calls
            away_s = inf if following is None else following.think_s or 0.0
            at_s = start_s + (
                request.arrives_s if following is None else max(request.arrives_s, following.arrives_s - away_s)
            )
            yield TurnEnd(at_s, number, kind, away_s, inf)


def chats(path: Path) -> Iterator[TurnEnd]:
    """Turns of the trace: one goes on from another if its prompt begins with all full blocks of the other's."""
    open_turns: dict[int, tuple[int, float]] = {}
    ended: dict[tuple[int, float], float] = {}
    requests = list(read_mooncake(lines_of(path)))
    for request in requests:
        hashes = request.block_hashes
        # The first block is the service's own: every prompt begins with it.
        before = next((open_turns.pop(block) for block in reversed(hashes[1:]) if block in open_turns), None)
        number, turn = len(ended), (0, 0.0)
        if before is not None:
            turn = before
            ended[turn] = max(0.0, request.arrives_s - turn[1])
        turn = (turn[0] + 1, request.arrives_s + ANSWER_TOKEN_S * request.output_tokens + number * 1e-9)
        ended[turn] = inf
        if len(hashes) > 1:
            open_turns[hashes[-1]] = turn
    for number, ((turns, at_s), away_s) in enumerate(ended.items()):
        kind = ReturnClass.of("stop", turns, from_tool=False)
        yield TurnEnd(at_s, -1 - number, kind, away_s, requests[-1].arrives_s - at_s)


def asked(end: TurnEnd, learnt: Returns, published: Returns) -> Iterator[Case]:
    for idle_s in IDLE_S:
        for within_s in WITHIN_S:
            # Returns near the end of the trace are known where those who stay away are not: neither counts.
            if end.away_s > idle_s and end.known_s >= idle_s + within_s:
                chances = [returns.chance(end.kind, idle_s, within_s) for returns in (learnt, published)]
                yield Case((idle_s, within_s), end.away_s <= idle_s + within_s, *chances)


def cases(ends: Sequence[TurnEnd]) -> tuple[list[Case], list[Case]]:
    """Both halves' questions, with the chances as they were when each turn ended."""
    learnt, published = Returns(), Returns()
    half_s = sorted(end.at_s for end in ends)[len(ends) // 2]
    halves: tuple[list[Case], list[Case]] = ([], [])
    backs: list[tuple[float, int]] = []
    for end in sorted(ends):
        while backs and backs[0][0] <= end.at_s:
            back_s, session = heappop(backs)
            learnt.came_back(session, back_s)
        halves[end.at_s >= half_s].extend(asked(end, learnt, published))
        learnt.ended(end.session, end.kind, end.at_s)
        if end.away_s < inf:
            heappush(backs, (end.at_s + end.away_s, end.session))
    return halves


def row(name: str, first: Sequence[Case], second: Sequence[Case]) -> list[str]:
    shares: dict[tuple[float, float], list[bool]] = defaultdict(list)
    for case in first:
        shares[case.asked].append(case.came)
    constants = {question: sum(came) / len(came) for question, came in shares.items()}

    def brier(chances: Sequence[float]) -> float:
        return sum((chance - case.came) ** 2 for chance, case in zip(chances, second, strict=True)) / len(second)

    constant = brier([constants.get(case.asked, 0.5) for case in second])
    learnt = brier([case.learnt for case in second])
    said, came = sum(case.learnt for case in second) / len(second), sum(case.came for case in second) / len(second)
    scores = [f"{score:.4f}" for score in (learnt, constant, brier([case.published for case in second]))]
    better = f"{1 - learnt / constant:.0%}" if constant else "-"
    return [name, f"{len(second):,}", f"{came:.3f}", f"{said:.3f}", *scores, better]


def rows(name: str, ends: Sequence[TurnEnd]) -> Iterator[list[str]]:
    first, second = cases(ends)
    yield row(name, first, second)
    for idle_s in IDLE_S:
        for within_s in WITHIN_S:
            here = [[case for case in half if case.asked == (idle_s, within_s)] for half in (first, second)]
            yield row(f"  idle {idle_s:.0f} s, within {within_s:.0f} s", *here)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=Path)
    parser.add_argument("--chats", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    loads: dict[str, list[TurnEnd]] = {}
    if options.agents:
        loads["coding agents"] = list(agents(options.agents, Random(options.seed)))
    if options.chats:
        loads["chats"] = list(chats(options.chats))
    if not loads:
        parser.error("give --agents, --chats, or both")
    table = Table("traffic", "questions", "came back", "foretold", "learnt", "constant", "published", "better by")
    for name, ends in loads.items():
        for cells in rows(name, ends):
            table.add_row(*cells)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
