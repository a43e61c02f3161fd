"""The worked examples of the explanations are run, page by page; what they print is what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.examples import examples_by_page, rewritten, run
from tests.contract.pages import DOCS, Block

EXAMPLES = examples_by_page()
EXPLANATION = DOCS / "explanation"
TERMS = {"queue", "own", "following", "delay", "share", "evicted", "streams", "holding"}


def test_the_pages_that_promise_examples_have_them() -> None:
    names = {page.stem for page in EXAMPLES if page.parent == EXPLANATION}
    assert names == {"prompt-identity", "residency", "deciding", "health", "queue"}
    assert {page.stem for page in EXAMPLES if page.parent == EXPLANATION / "terms"} == TERMS
    assert {page.parent for page in EXAMPLES} == {EXPLANATION, EXPLANATION / "terms"}


@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: f"{page.parent.stem}/{page.stem}")
def test_examples_print_what_the_page_says(page: Path) -> None:
    said, _ = run(EXAMPLES[page])
    assert not said, "".join(said)


def test_what_examples_print_is_written_anew() -> None:
    page = EXPLANATION / "terms" / "own.md"
    lines = page.read_text().splitlines(keepends=True)
    block = EXAMPLES[page][0]
    told = [index for index in range(block.line, len(lines)) if not lines[index].startswith((">>>", "...", "```"))]
    lines[told[0]] = "something else\n"
    wrong = Block(page, block.line, block.info, "".join(lines[block.line : block.line + block.text.count("\n")]))
    said, anew = run([wrong, *EXAMPLES[page][1:]])
    assert "something else" in "".join(said)
    assert rewritten("".join(lines), anew) == page.read_text()
