"""What a decision costs: a request's body read and hashed, routed, and settled, in microseconds.

A chat of N blocks of 512 bytes goes through a fleet whose replicas all hold its system prompt (an eighth of it) and one
of which holds its whole history but the last turn: the usual follow-up turn. Nothing is sent; the same functions run as
in the live router. "read" is the JSON of the body, "hash to settle" everything after it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from router.core.fleet import Fleet
from router.core.policies import POLICIES
from router.core.prompt import BLOCK_BYTES, PromptBuilder, scope_hash
from router.core.types import EngineReport, Outcome, OutcomeKind, Usage
from router.proxy.openai import read_request

PATH = "/v1/chat/completions"
SESSIONS = 50
SCOPE = scope_hash("m", "")


def body(session: int, blocks: int, turn: int) -> bytes:
    """Return the body of a session's turn; turn 1 is one exchange longer than turn 0."""
    system = "You are a helpful assistant. " * (blocks * BLOCK_BYTES // 8 // 29)
    message = f"{session} says: it was a dark and stormy night; \n" * 1000
    rest = blocks * BLOCK_BYTES - len(system)
    messages = [{"role": "system", "content": system}]
    for number, start in enumerate(range(0, rest, 2 * BLOCK_BYTES)):
        size = max(1, min(2 * BLOCK_BYTES, rest - start) - 12)
        messages.append({"role": ("user", "assistant")[number % 2], "content": (f"{number} " + message)[:size]})
    for number in range(turn):
        messages.append({"role": "assistant", "content": f"answer {number}"})
        messages.append({"role": "user", "content": f"question {number}"})
    return json.dumps({"model": "m", "stream": True, "messages": messages}).encode()


def fleet_of(replicas: int, policy: str) -> Fleet:
    fleet = Fleet(POLICIES[policy])
    for number in range(replicas):
        fleet.add(f"r-{number:08x}")
        fleet.observe_engine(f"r-{number:08x}", EngineReport(kv_tokens=20_000_000, block_tokens=16, start_time_s=1.0))
    return fleet


def hash_blocks(texts: list[tuple[bytes, bytes]]) -> float:
    """Hash a prompt's messages alone; return the seconds."""
    started = time.perf_counter()
    builder = PromptBuilder(SCOPE)
    for role, text in texts:
        builder.add(role, text)
    builder.build()
    return time.perf_counter() - started


def texts_of(data: bytes) -> list[tuple[bytes, bytes]]:
    return [(message["role"].encode(), message["content"].encode()) for message in json.loads(data)["messages"]]


def decide(fleet: Fleet, data: bytes, now: float, excluded: tuple[str, ...] = ()) -> tuple[float, float, float, str]:
    """Read, route and settle one request; return the seconds of each and the reason."""
    started = time.perf_counter()
    request = read_request(PATH, data, None)
    read = time.perf_counter()
    ticket = fleet.route(request, now, excluded)
    routed = time.perf_counter()
    fleet.first_byte(ticket, now + 0.2)
    usage = Usage(ticket.decision.prompt_tokens, ticket.decision.matched_tokens, 50, "stop")
    fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200, usage), now + 1.0)
    return read - started, routed - read, time.perf_counter() - routed, ticket.decision.reason


def measure(replicas: int, blocks: int, policy: str, rounds: int) -> Iterator[tuple[float, float, float, float]]:
    fleet, now = fleet_of(replicas, policy), 0.0
    everyone = [replica.replica_id for replica in fleet]
    for replica in everyone:  # the system prompt is everywhere
        others = tuple(name for name in everyone if name != replica)
        decide(fleet, body(-1, blocks, 0), now, others)
    for session in range(SESSIONS):
        decide(fleet, body(session, blocks, 0), now)
    for number in range(rounds):
        now += 0.1
        session, turn = number % SESSIONS, 1 + number // SESSIONS
        data = body(session, blocks, turn)
        hashed = hash_blocks(texts_of(data))
        read, routed, settled, reason = decide(fleet, data, now)
        assert reason in ("warm", "policy", "spilled"), reason
        yield max(0.0, read - hashed), hashed, routed, settled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, nargs="+", default=[4, 32, 256])
    parser.add_argument("--blocks", type=int, nargs="+", default=[8, 64, 1024])
    parser.add_argument("--policy", choices=sorted(POLICIES), default="affinity")
    parser.add_argument("--rounds", type=int, default=1000, help="decisions per cell (default %(default)s)")
    arguments = parser.parse_args()
    table = Table(title=f"Microseconds per decision, policy {arguments.policy}: median (99th percentile)")
    for name in ("replicas", "blocks", "body kB", "read", "hash", "route", "settle", "hash to settle", "all"):
        table.add_column(name, justify="right")
    for replicas in arguments.replicas:
        for blocks in arguments.blocks:
            rows = list(measure(replicas, blocks, arguments.policy, max(100, arguments.rounds // (1 + blocks // 256))))
            columns = [*zip(*rows, strict=True), [sum(row[1:]) for row in rows], [sum(row) for row in rows]]
            cells = [
                f"{statistics.median(c) * 1e6:.0f} ({statistics.quantiles(c, n=100)[98] * 1e6:.0f})" for c in columns
            ]
            size = len(body(0, blocks, 1)) / 1000
            table.add_row(str(replicas), str(blocks), f"{size:.0f}", *cells)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
