"""Requests found by coverage: atheris changes bytes, and keeps those that make the router go another way.

`pip install atheris`, where it has a wheel, then `python -m tests.conversations.guided -max_total_time=600`; the
options are libFuzzer's. It sees the router's own code, and not llhttp, which is C. What it finds is checked as
generated requests are.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["router.proxy"]):
    from tests.conversations.lane import Lane
    from tests.conversations.table import REQUESTS
    from tests.conversations.talking import Engine, cut
    from tests.conversations.test_fuzzed_requests import Checked

CUTS = 2
"""Bytes in front that say where the rest is cut, in 256ths."""


def seeds(folder: str) -> None:
    """Write the table's requests down for it to begin with."""
    for number, data in enumerate(REQUESTS.values()):
        (Path(folder) / str(number)).write_bytes(bytes(CUTS) + data)


def main() -> None:
    """Run until an assertion fails, or as long as the options say."""
    engine = Engine()
    with tempfile.TemporaryDirectory() as folder, Lane(engine.script) as lane:
        checked = Checked(lane, engine)

        def one(data: bytes) -> None:
            sent = data[CUTS:]
            if sent:
                checked.play(cut(sent, *(place * len(sent) // 256 for place in data[:CUTS])))

        seeds(folder)
        atheris.Setup([sys.argv[0], "-max_len=1000", *sys.argv[1:], folder], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
