"""Does a router's memory come to rest? Chats at full speed, until all that has a bound is full several times over.

usage: plateau.py [--turns 300000] [--connections 24] [--json FILE]

README.md beside this file says what each figure means. Exit code 1: it does not.
"""

import argparse
import asyncio
import json
import re
import statistics
import sys
from pathlib import Path

import httpx
import uvloop

from benchmarks.load import connect, post
from benchmarks.peers import WARMROUTE, Setup, wait_ready, warmroute_command
from benchmarks.processes import Process, free_ports, running
from benchmarks.report import console, write_json
from benchmarks.rig import backends, raise_open_files_limit

TURNS_A_CHAT = 20
READINGS = 40
"""Over the whole run: ten in a quarter of it."""
MOST_GROWN_BYTES = 4e6
"""Between the last two quarters. Readings of a router at rest differ by 1 or 2 MB."""
MB = 1e6
_INDEX = re.compile(r"^warmroute_index_bytes (\S+)$", re.MULTILINE)

Reading = tuple[int, float]
"""Turns so far, and resident bytes without the index."""


async def chat(port: int, name: str, turns: list[int], most: int) -> None:
    """One client's chats, one after the other, each turn with all of its history; `turns` counts those of all."""
    connection, number = await connect(port), 0
    while turns[0] < most:
        number += 1
        said = [{"role": "system", "content": "You are helpful. " * 40}]
        for turn in range(TURNS_A_CHAT):
            said.append({"role": "user", "content": f"{name} {number} {turn} " + "some words of it " * 6})
            answer = await connection.start(post(json.dumps({"model": "m", "messages": said}).encode()))
            if not answer.ok(streamed=False):
                raise RuntimeError(f"a turn failed: {answer}")
            said.append({"role": "assistant", "content": f"answer {turn} " + "it is so " * 8})
            turns[0] += 1
    await connection.close()


async def readings(process: Process, admin_port: int, turns: list[int], most: int) -> list[Reading]:
    found: list[Reading] = []
    async with httpx.AsyncClient() as client:
        while turns[0] < most:
            if turns[0] >= most * len(found) / READINGS:
                index = _INDEX.search((await client.get(f"http://127.0.0.1:{admin_port}/metrics")).text)
                found.append((turns[0], process.rss_bytes() - (float(index[1]) if index else 0.0)))
            await asyncio.sleep(0.05)
    return found


def grown_bytes(found: list[Reading]) -> float:
    """Return by how much the mean of the last quarter of the readings is above that of the quarter before."""
    quarter = max(1, len(found) // 4)
    last, before = found[-quarter:], found[-2 * quarter : -quarter]
    return statistics.fmean(size for _, size in last) - statistics.fmean(size for _, size in before)


async def measure(most: int, connections: int) -> list[Reading]:
    port, admin_port = free_ports(2)
    with backends() as urls, running(warmroute_command(Setup(port, admin_port, urls, Path(), Path()), "")) as process:
        await asyncio.to_thread(wait_ready, process, port)
        turns = [0]
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(readings(process, admin_port, turns, most))
            for number in range(connections):
                group.create_task(chat(port, str(number), turns, most))
        return looking.result()


def main() -> int:
    """Measure, print and judge; return the exit code."""
    parser = argparse.ArgumentParser(description="See whether a router's memory comes to rest.")
    parser.add_argument("--turns", type=int, default=300_000, help="of all chats (default 300000)")
    parser.add_argument("--connections", type=int, default=24, help="chats at once (default 24)")
    parser.add_argument("--json", type=Path, help="write the readings to FILE", metavar="FILE")
    options = parser.parse_args()
    raise_open_files_limit()
    found = uvloop.run(measure(options.turns, options.connections))
    for turns, size in found[:: max(1, len(found) // 8)]:
        console().print(f"after {turns:7,} turns {size / MB:6.1f} MB without the index")
    grown = grown_bytes(found)
    console().print(f"grown in the last quarter: {grown / MB:.1f} MB; {MOST_GROWN_BYTES / MB:.0f} are let pass")
    write_json(options.json, {WARMROUTE: [{"turns": turns, "bytes": size} for turns, size in found]})
    return 1 if grown > MOST_GROWN_BYTES else 0


if __name__ == "__main__":
    sys.exit(main())
