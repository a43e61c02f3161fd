"""The values of an engine's cache: where blocks are, what was stored, what is held of a prompt."""

from __future__ import annotations

from array import array
from enum import Enum
from typing import NamedTuple

import msgspec


class Medium(Enum):
    """Where a copy of a block is. Nearest first."""

    GPU = "gpu"
    """The cache that the engine computes from, whatever the device is called."""
    CPU = "cpu"
    """The host's memory."""
    DISK = "disk"
    """Anything further away: files, object stores, other hosts."""


class Stored(NamedTuple):
    """Blocks that an engine stored, each the child of the one before."""

    hashes: list[int]
    """The engine's own 64-bit block hashes."""
    parent: int | None
    """The engine's hash of the block before the first one; None at the start of a prompt."""
    token_ids: array[int]
    """Unsigned 32-bit, type code "I"; empty where the event only names blocks."""
    block_tokens: int
    scope: int | None
    """What separates caches beside the tokens (`token_ids.token_scope`). None behind a parent, whose scope it is."""
    foreign: list[int] | None = None
    """For each block a hash of what else its identity depends on, such as an image; 0: nothing. None: all are 0."""
    label: int | None = None
    """Hash of the session that the event names; None: it names none."""


class Held(NamedTuple):
    """Leading tokens of a prompt that are there, by where they would come from."""

    gpu_tokens: int = 0
    cpu_tokens: int = 0
    disk_tokens: int = 0

    @property
    def tokens(self) -> int:
        """What the engine will report as cached."""
        return sum(self)

    @property
    def reloaded_tokens(self) -> int:
        """What has to be copied to the GPU first."""
        return self.cpu_tokens + self.disk_tokens


NOTHING = Held()


class End(msgspec.Struct, gc=False):
    """Where turns end that have the same last block left. It names the block, since a reference would be a cycle."""

    block: int | None = None
    """The engine's hash of that block; None: nothing is left, or see `into`."""
    into: End | None = None
    """The end that this one has become one with: what was between them is gone."""


class Chain(msgspec.Struct, gc=False):
    """The engine's blocks of one turn: prompt and answer."""

    end: End | None = None
    """None: unknown."""
    blocks: int = 0
    """How many there were when the last one was stored."""


class Block(msgspec.Struct, gc=False):
    """One block that an engine holds. A tree without cycles, so the garbage collector need not look at it."""

    key: int
    """The engine's own hash of it."""
    name: int | None = None
    """Our chained hash of its tokens and all before them (`token_ids.chained`); None while its parent is unknown."""
    parent: Block | None = None
    blocks: int = 0
    """How many leading blocks of a prompt end with it; 0 while it has no name."""
    gpu: int = 0
    """Copies in the GPU's cache: vLLM does not merge blocks that two requests computed at the same time."""
    cpu: bool = False
    disk: bool = False
    end: End | None = None
    """Of the turns of which it is the last block that is left; None: there is none."""

    @property
    def gone(self) -> bool:
        """Whether no copy is left."""
        return not (self.gpu or self.cpu or self.disk)
