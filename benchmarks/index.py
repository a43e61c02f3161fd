"""Memory of the index: a fleet that holds 64 M tokens and 100,000 known sessions.

Chats of many lengths run through the fleet until every replica's mirror is as full as the engine's cache would be; then
the process's memory is compared with what it was before, and with what the index says of itself.
"""

from __future__ import annotations

import argparse
import gc
from pathlib import Path
from random import Random

from rich.console import Console
from rich.table import Table

from router.core.fleet import Fleet
from router.core.prompt import PromptBuilder, scope_hash, session_hash
from router.core.types import EngineReport, Outcome, OutcomeKind, RoutingRequest, Usage

BYTES_PER_TOKEN = 4
SCOPE = scope_hash("m", "")


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def turn(chance: Random, session: int) -> RoutingRequest:
    """Return the last turn of a session: a system prompt, then messages of the chat workload's sizes."""
    builder = PromptBuilder(SCOPE)
    builder.add(b"system", b"%d " % chance.randrange(24) * 600)
    for number in range(chance.randint(1, 8)):
        size = int(min(4_000, chance.lognormvariate(4.8, 1.1)) * BYTES_PER_TOKEN)
        builder.add((b"user", b"assistant")[number % 2], (b"%d %d " % (session, number) * (1 + size // 8))[:size])
    prompt = builder.build()
    return RoutingRequest("m", "chat", prompt, 1, True, session_hash(SCOPE, str(session)), False)


def fill(fleet: Fleet, sessions: int, tokens: int) -> int:
    """Route sessions until `tokens` are held and `sessions` are known; return how many it took."""
    chance, count = Random(1), 0
    goal_bytes = tokens * BYTES_PER_TOKEN * 0.97  # the last few per cent only come with evictions
    while count < sessions or sum(replica.mirror.idle_bytes for replica in fleet) < goal_bytes:
        request = turn(chance, count)
        ticket = fleet.route(request, count * 0.01)
        fleet.first_byte(ticket, count * 0.01 + 0.01 + ticket.entry.work.uncached / 8_000)
        tokens_in = 0 if request.prompt is None else request.prompt.ends_bytes[-1] // BYTES_PER_TOKEN
        usage = Usage(tokens_in, ticket.decision.matched_tokens, 200, "stop")
        fleet.settle(ticket, Outcome(OutcomeKind.COMPLETED, 200, usage), count * 0.01 + 5)
        count += 1
        if count > 5 * sessions:
            break
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=64)
    parser.add_argument("--kv-tokens", type=int, default=1_000_000, help="of each replica")
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--index-bytes", type=int, default=256 << 20)
    arguments = parser.parse_args()
    gc.collect()
    before = resident_mb()
    fleet = Fleet(index_bytes=arguments.index_bytes)
    for number in range(arguments.replicas):
        fleet.add(f"r{number}")
        report = EngineReport(kv_tokens=arguments.kv_tokens, block_tokens=16, start_time_s=1.0)
        fleet.observe_engine(f"r{number}", report)
    count = fill(fleet, arguments.sessions, arguments.replicas * arguments.kv_tokens)
    gc.collect()
    held = sum(replica.mirror.idle_bytes for replica in fleet) / BYTES_PER_TOKEN
    table = Table("figure", "value", title="Memory of the index")
    for name, value in (
        ("turns routed", f"{count:,}"),
        ("tokens held", f"{held / 1e6:.1f} M"),
        ("blocks", f"{sum(len(replica.mirror) for replica in fleet):,}"),
        ("sessions known", f"{len(fleet.index.homes):,}"),
        ("turn ends known", f"{len(fleet.index.turns):,}"),
        ("process grew by", f"{resident_mb() - before:.0f} MB"),
        ("the index says", f"{fleet.index.size_bytes / 1e6:.0f} MB"),
        ("--index-bytes", f"{arguments.index_bytes / 1e6:.0f} MB"),
    ):
        table.add_row(name, value)
    Console().print(table)


if __name__ == "__main__":
    main()
