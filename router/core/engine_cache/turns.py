"""Which of an engine's blocks a turn ended with: learnt from events that name the request they come from."""

from __future__ import annotations

from router.core.bounded import BoundedMap
from router.core.engine_cache.types import Block, Chain, End
from router.core.prompt import open_hash
from router.core.tokens import turn_links
from router.core.types import Prompt

MAX_TURNS = 1 << 15
"""Turns remembered of one engine: as many as 32,000 sessions that it holds. Some 10 MB."""


def turn_key(prompt: Prompt) -> int:
    """Return the key under which a prompt's own turn is remembered: that of its end (`tokens.TurnEnds`)."""
    return turn_links(prompt, 0, 0)[-1][0]


def anchor_key(prompt: Prompt, blocks: int, end_bytes: int) -> int:
    """Return the key of the turn that ended behind `blocks` blocks of a prompt, at `end_bytes` of it."""
    leaf = prompt.hashes[blocks - 1]
    if prompt.open_text is None:
        return leaf
    return open_hash(leaf, prompt.open_text[prompt.ends_bytes[blocks - 1] : end_bytes])


class Turns:
    """The turns that ran on one engine, and how much of each is left there."""

    __slots__ = ("_alone", "_by_key", "_by_label", "_labelled")

    def __init__(self) -> None:
        self._labelled = False
        """Whether the engine has named a session of ours: then events without one are of somebody else."""
        self.forget()

    def forget(self) -> None:
        """Know no turns."""
        self._by_key: BoundedMap[Chain] = BoundedMap(MAX_TURNS)
        self._by_label: BoundedMap[Chain] = BoundedMap(MAX_TURNS)
        self._alone: Chain | None = None
        """The turn that events without a label are of: nothing else runs."""

    def begin(self, key: int, label: int, alone: bool, origin: int | None = None) -> None:
        """Note that a turn is sent to the engine: its events will carry `label`.

        `alone`: no other request runs there, so its events are known even where the engine names no session. `origin`:
        key of the turn that it goes on from; a turn that fills no new block has the blocks of that.
        """
        before = self._by_key.get(key) or (None if origin is None else self._by_key.get(origin))
        chain = Chain() if before is None else Chain(before.end, before.blocks)
        self._by_key.put(key, chain)
        self._by_label.put(label, chain)
        self._alone = chain if alone else None

    def extend(self, label: int | None, leaf: Block) -> None:
        """Note that a turn's blocks go up to `leaf` now. `label` None: the engine does not say whose they are."""
        chain = self._by_label.get(label) if label is not None else None if self._labelled else self._alone
        if chain is None:
            return
        self._labelled = self._labelled or label is not None
        if leaf.end is None:
            leaf.end = End(leaf.key)
        chain.end, chain.blocks = leaf.end, leaf.blocks

    def lost(self, block: Block) -> None:
        """Note that a block is gone: its turns are left up to the block before."""
        end, parent = block.end, block.parent
        block.end = None
        if end is None:
            return
        end.block = None
        if parent is None or parent.gone:
            return
        if parent.end is None:
            end.block, parent.end = parent.key, end
        else:
            end.into = parent.end

    def deepest(self, prompt: Prompt, matched: int) -> int:
        """Return the blocks of a chat up to its last turn that is left here, `matched` if that is more."""
        blocks = self.last_turn(prompt, matched)
        if blocks:
            chain = self._by_key.get(prompt.hashes[blocks - 1])
            end = None if chain is None else _end_of(chain)
            if end is not None and end.block is not None:
                return blocks
        return matched

    def last_turn(self, prompt: Prompt, after: int = 0) -> int:
        """Return the blocks of a chat up to its last turn that ran here, 0 where none did behind `after` blocks."""
        if prompt.open_text is not None:
            return 0
        for blocks in (len(prompt.hashes), *reversed(prompt.answers_at)):
            if blocks <= after:
                break
            chain = self._by_key.get(prompt.hashes[blocks - 1])
            if chain is not None and chain.end is not None:
                return blocks
        return 0

    def left(self, key: int, blocks: int | None) -> End | None:
        """Return where a turn of `blocks` blocks (None: whatever it has) ends by now.

        None: it is unknown, or its blocks do not add up.
        """
        chain = self._by_key.get(key)
        return None if chain is None or blocks not in (None, chain.blocks) else _end_of(chain)


def _end_of(chain: Chain) -> End | None:
    """Return where a turn ends by now, and remember it for the next time."""
    end = chain.end
    while end is not None and end.into is not None:
        end = end.into
    chain.end = end
    return end
