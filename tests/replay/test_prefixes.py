"""The LRU cache of prompts, against one that looks at every block."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.replay.prefixes import SPARE_BLOCKS, PrefixCache

# Prompts in a tree: a block's identity is the path to it.
prompts = st.lists(st.integers(0, 2), min_size=1, max_size=6)


def chain(path: list[int]) -> list[int]:
    return [int("1" + "".join(map(str, path[: depth + 1]))) for depth in range(len(path))]


class Slow:
    """Evicts the block that was used least recently; of those used together the last."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.clock = capacity, 0
        self.held: dict[int, tuple[int, int]] = {}

    def use(self, hashes: list[int]) -> None:
        self.clock += 1
        for depth, block in enumerate(hashes):
            self.held[block] = (self.clock, -depth)
        while len(self.held) > self.capacity:
            del self.held[min(self.held, key=self.held.__getitem__)]

    def match(self, hashes: list[int]) -> int:
        return next((depth for depth, block in enumerate(hashes) if block not in self.held), len(hashes))


@given(st.lists(prompts, max_size=40), st.integers(1, 15))
def test_it_holds_what_a_slow_one_holds(paths: list[list[int]], capacity: int) -> None:
    fast, slow = PrefixCache(capacity), Slow(capacity)
    for path in paths:
        hashes = chain(path)
        assert fast.match(hashes) == slow.match(hashes)
        fast.use(hashes)
        slow.use(hashes)
        assert len(fast) == len(slow.held) <= capacity


@given(st.lists(prompts, max_size=40))
def test_without_a_limit_it_forgets_nothing(paths: list[list[int]]) -> None:
    cache = PrefixCache()
    for path in paths:
        cache.use(chain(path))
    assert all(cache.match(chain(path)) == len(path) for path in paths)


def test_the_record_of_uses_does_not_grow_with_the_uses() -> None:
    cache = PrefixCache(1_000)
    for _ in range(3 * SPARE_BLOCKS):
        cache.use(list(range(10)))
    assert len(cache) == 10
    assert cache._used_blocks <= 2 * 10 + SPARE_BLOCKS + 10
    cache.use([*range(10), *range(100, 1_090)])
    assert (len(cache), cache.match(list(range(10)))) == (1_000, 10)


def test_cleared_it_holds_nothing() -> None:
    cache = PrefixCache(10)
    cache.use([1, 2])
    cache.clear()
    assert (len(cache), cache.match([1, 2])) == (0, 0)
