"""`warmroute replay --touch`: the account stands below the table, and in the JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.app.replay.commands import EXCERPT, replay, rows_of

pytestmark = pytest.mark.timeout(120)


def test_the_account_is_told(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    done = replay(EXCERPT, "--minutes", "1", "--policy", "affinity,rr", "--touch", "--jobs", "1", "--json", found)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(rows_of(done.stdout)) == 2
    told = re.findall(r"(\S+): (\d+) touches; seconds of prefill:", done.stdout)
    assert [policy for policy, _ in told] == ["affinity"], "the others do not touch"
    first, second = json.loads(found.read_text())["runs"]
    assert first["touches"] == int(told[0][1])
    assert first["touch_saved_s"] >= 0
    assert "touches" not in second
