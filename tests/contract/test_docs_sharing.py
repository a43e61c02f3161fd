"""docs/explanation/sharing.md: its diagram is the table, its numbers are the constants."""

from __future__ import annotations

from router.adapters.redis_store.outbox import MAX_NEWS, MAX_NEWS_BYTES, MAX_WRITES
from router.adapters.redis_store.state import State, diagram
from router.adapters.redis_store.store import LEDGER_S, SENT_S, SOON_S
from router.adapters.redis_store.telling import HEARTBEAT_S, SPACING_S
from router.core.landmarks import MAX_ASKED, RECENT_BLOCKS, STRIDE_BLOCKS
from router.core.peers import SILENT_S
from tests.contract.pages import DOCS, code, table

PAGE = DOCS / "explanation" / "sharing.md"


def test_the_diagram_is_drawn_from_the_table() -> None:
    assert f"```mermaid\n{diagram()}\n```" in PAGE.read_text()


def test_every_state_is_explained() -> None:
    assert {code(row[0]) for row in table(PAGE, "When Redis is not well")} == set(State)


def test_the_numbers_are_those_of_the_code() -> None:
    text = " ".join(PAGE.read_text().split())
    for words in (
        f"within {SENT_S * 1000:g} ms, so before",
        f"within {SOON_S * 1000:g} ms |",
        f"after a first byte within {LEDGER_S:g} s",
        f"at least every {HEARTBEAT_S:g} s",
        f"not heard of for {SILENT_S:g} s",
        f"then one every {SPACING_S * 1000:g} ms at the most",
        f"the last {MAX_ASKED} ends of turns",
        f"every {STRIDE_BLOCKS}th block",
        f"the last {RECENT_BLOCKS} blocks",
        f"{MAX_NEWS:,} pieces of news, {MAX_NEWS_BYTES >> 20} MiB, {MAX_WRITES:,} turn ends",
    ):
        assert words in text, words
