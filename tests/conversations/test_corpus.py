"""Requests that can be read in two ways: what comes of each is what docs/reference/http.md says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conversations import nginx
from tests.conversations.corpus import CORPUS, Entry
from tests.conversations.judging import Witness, judge
from tests.conversations.page import documented, nginx_version
from tests.conversations.reading import check_refusal
from tests.rig.client import chat
from tests.rig.stage import Stage

ALL = [(heading, name) for heading, entries in CORPUS.items() for name in entries]
AGAIN = "write the page anew: python -m tests.conversations.page"


def answers_in(cell: str) -> int:
    """How many answers a cell of the tables has."""
    statuses = cell.partition(" → ")[0]
    return 0 if statuses == "none" else statuses.count(",") + 1


@pytest.mark.parametrize("heading", CORPUS)
def test_every_one_has_its_row(heading: str) -> None:
    rows = documented(heading)
    assert list(rows) == list(CORPUS[heading]), AGAIN
    for name, (section, ours, theirs, why) in rows.items():
        entry = CORPUS[heading][name]
        assert section == entry.section, AGAIN
        assert bool(why) == (ours != theirs), f"{name}: {AGAIN}"
        assert why in ("", entry.why), AGAIN


@pytest.mark.parametrize(("heading", "name"), [pytest.param(*both, id=both[1]) for both in ALL])
async def test_what_comes_of_it_is_what_the_page_says(stage: Stage, heading: str, name: str) -> None:
    witness = Witness()
    upstream = await stage.upstream(witness.script)
    router = await stage.router(upstream)
    said = documented(heading)[name][1]
    outcome, answers = await judge(router, witness, CORPUS[heading][name].data, answers_in(said))
    assert str(outcome) == said, AGAIN
    assert witness.unreadable == []
    assert max(outcome.answers) < 500
    for answer in answers.messages:
        if answer.status in (400, 414, 431):
            check_refusal(answer, statuses={400, 414, 431})
            assert answer.last
            assert answer is answers.messages[-1]
    for asked in witness.asked:
        assert asked.target != b"/sleep"
        assert asked.all(b"host") == [f"127.0.0.1:{upstream.port}".encode()]
        assert asked.all(b"content-length") == ([b"%d" % len(asked.body)] if asked.all(b"content-length") else [])
        for gone in (b"transfer-encoding", b"connection", b"upgrade", b"authorization"):
            assert asked.all(gone) == []
    assert (await stage.ask(router, chat())).status == 200


async def test_what_nginx_makes_of_it_is_what_the_page_says(stage: Stage, tmp_path: Path) -> None:
    if nginx.version() != nginx_version():
        pytest.skip(f"the page shows nginx {nginx_version()}, and this is {nginx.version()}")
    witness = Witness()
    upstream = await stage.upstream(witness.script)
    async with nginx.serving(tmp_path, upstream.port) as server:
        for heading, entries in CORPUS.items():
            for name, entry in entries.items():
                await _check(server, witness, entry, documented(heading)[name][2], name)


async def _check(server: nginx.Nginx, witness: Witness, entry: Entry, said: str, name: str) -> None:
    outcome, _ = await judge(server, witness, entry.data, answers_in(said))
    assert str(outcome) == said, name
