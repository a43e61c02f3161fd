"""`warmroute replay` as a user meets it."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
EXCERPT = ROOT / "benchmarks" / "data" / "mooncake_conversation_15_minutes.jsonl.gz"


def replay(*arguments: str | Path, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "router", "replay", *map(str, arguments)],
        env=os.environ | {"COLUMNS": "80", "PYTHONPATH": str(ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def rows_of(table: str) -> list[list[str]]:
    """The lines of a printed table that begin with a policy's name and have figures."""
    cells = [line.split() for line in table.splitlines()]
    return [line for line in cells if len(line) == 13 and re.fullmatch(r"[\d,]+", line[1])]


def refused(code: object, stdout: str, stderr: str) -> str:
    """The one line that says what is wrong; exit code 2."""
    assert (code, stdout) == (2, ""), stderr
    assert re.fullmatch(r"warmroute: [^\n]+\n", stderr), stderr
    return stderr.removeprefix("warmroute: ").rstrip()
