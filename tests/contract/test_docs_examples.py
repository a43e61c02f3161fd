"""The worked examples of the explanations are run, page by page; what they print is what the page says."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import pytest

from tests.contract.pages import DOCS, ROOT, Block, all_blocks

EXAMPLES: dict[Path, list[Block]] = {}
for _block in all_blocks():
    if _block.language == "pycon":
        EXAMPLES.setdefault(_block.page, []).append(_block)


def test_the_pages_that_promise_examples_have_them() -> None:
    names = {page.stem for page in EXAMPLES}
    assert names == {"prompt-identity", "residency", "deciding", "health", "queue"}
    assert {page.parent for page in EXAMPLES} == {DOCS / "explanation"}


@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: page.stem)
def test_examples_print_what_the_page_says(page: Path) -> None:
    parser = doctest.DocTestParser()
    names: dict[str, Any] = {}
    said: list[str] = []
    for block in EXAMPLES[page]:
        where = f"{page.relative_to(ROOT)}:{block.line}"
        example = parser.get_doctest(block.text, names, where, str(page), block.line)
        assert example.examples, where
        runner = doctest.DocTestRunner(verbose=False)
        runner.run(example, out=said.append, clear_globs=False)
        names = example.globs
    assert not said, "".join(said)
