"""The shell blocks of all Markdown, and the commands in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from tests.contract.pages import Block, all_blocks

SHELL = [block for block in all_blocks() if block.language in ("sh", "shell", "bash")]
MARKS = {"run", "fleet", "host", "demo", "checkout", "gpu", "cluster", "docker", "internet"}


def commands(block: Block) -> Iterator[list[str]]:
    """The simple commands of a block, as words. Quotes are resolved, substitutions are not."""
    text = re.sub(r"\\\n", " ", block.text)
    for line in text.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&()")
        lexer.whitespace_split, lexer.commenters = True, "#"
        words: list[str] = []
        try:
            found = list(lexer)
        except ValueError:  # a quoted text that goes on in the next line
            continue
        for word in [*found, ";"]:
            if set(word) <= set(";|&()"):
                if words:
                    yield words
                words = []
            elif words or not re.match(r"\w+=", word):  # variables before a command are looked at elsewhere
                words.append(word)
