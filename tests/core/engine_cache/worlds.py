"""A tiny engine: tokens are small numbers, blocks have four of them, the engine's hashes are whatever is told."""

from array import array

from router.core.engine_cache.types import Stored
from router.core.token_ids import TokenIds, token_scope

SCOPE = token_scope(None, None)
SIZE = 4


def stored(hashes: list[int], tokens: range, parent: int | None = None, label: int | None = None) -> Stored:
    """Blocks of the tokens in `tokens`, whose parent is the engine's block `parent`."""
    return Stored(hashes, parent, array("I", tokens), SIZE, SCOPE if parent is None else None, None, label)


def prompt(tokens: range, scope: int = SCOPE) -> TokenIds:
    return TokenIds(array("I", tokens), scope)
