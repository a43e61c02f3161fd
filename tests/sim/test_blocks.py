"""The block pool in a world of 11 blocks of 16 tokens, checked block by block."""

from array import array

import pytest
from xxhash import xxh3_64_intdigest

from router.sim.blocks import NULL_BLOCK, BlockPool, OutOfBlocks, chain_hashes, pack_ids

BLOCK_TOKENS = 16


def pool() -> BlockPool:
    return BlockPool(11)


def store(blocks: BlockPool, hashes: list[int]) -> list[int]:
    """Fill one new block per hash, as a request does, and let go of them."""
    held = blocks.allocate(len(hashes))
    for block, block_hash in zip(held, hashes, strict=True):
        blocks.cache(block, block_hash)
    blocks.release(held)
    return held


def test_one_block_of_the_pool_is_reserved():
    blocks = pool()
    assert blocks.free_blocks == 10
    assert blocks.allocate(10) == list(range(1, 11))
    assert NULL_BLOCK not in range(1, 11)
    assert (blocks.used_blocks, blocks.used_ratio) == (10, 1.0)


def test_a_pool_needs_a_usable_block():
    with pytest.raises(ValueError, match="2 blocks"):
        BlockPool(1)


def test_an_allocation_that_does_not_fit_changes_nothing():
    blocks = pool()
    store(blocks, [101, 102])
    with pytest.raises(OutOfBlocks):
        blocks.allocate(11)
    assert blocks.free_blocks == 10
    assert blocks.longest_hit([101, 102], 9) == [1, 2]


def test_blocks_that_were_never_used_go_first_then_the_tail_of_the_oldest():
    blocks = pool()
    store(blocks, [101, 102, 103])
    store(blocks, [201, 202])
    assert blocks.eviction_order() == [6, 7, 8, 9, 10, 3, 2, 1, 5, 4]


def test_only_an_allocation_drops_a_hash_and_only_of_the_block_it_takes():
    blocks = pool()
    store(blocks, [101, 102, 103])
    blocks.allocate(7)
    assert blocks.evicted_blocks == 0
    assert blocks.longest_hit([101, 102, 103], 9) == [1, 2, 3]
    assert blocks.allocate(1) == [3]
    assert blocks.evicted_blocks == 1
    assert blocks.longest_hit([101, 102, 103], 9) == [1, 2]


def test_a_hit_stops_at_the_first_gap_and_at_the_limit():
    blocks = pool()
    store(blocks, [101, 102, 103])
    assert blocks.longest_hit([101, 999, 103], 9) == [1]
    assert blocks.longest_hit([101, 102, 103], 2) == [1, 2]
    assert blocks.longest_hit([999], 9) == []


def test_a_touched_block_leaves_the_free_queue_and_comes_back_as_the_newest():
    blocks = pool()
    store(blocks, [101])
    store(blocks, [201])
    assert blocks.idle_among([1, 2]) == 2
    blocks.touch([1])
    assert blocks.idle_among([1, 2]) == 1
    assert blocks.free_blocks == 9
    blocks.release([1])
    assert blocks.eviction_order()[-2:] == [2, 1]


def test_a_shared_block_is_free_when_its_last_holder_lets_go():
    blocks = pool()
    store(blocks, [101])
    blocks.touch([1])
    blocks.touch([1])
    assert (blocks.references(1), blocks.used_blocks) == (2, 1)
    blocks.release([1])
    assert (blocks.references(1), blocks.used_blocks) == (1, 1)
    blocks.release([1])
    assert (blocks.references(1), blocks.used_blocks) == (0, 0)


def test_blocks_without_a_hash_are_taken_again_first_the_tail_before_the_head():
    blocks = pool()
    held = blocks.allocate(4)
    blocks.cache(held[0], 101)
    blocks.cache(held[1], 102)
    blocks.release(held)
    assert blocks.eviction_order() == [4, 3, 5, 6, 7, 8, 9, 10, 2, 1]


def test_two_blocks_with_one_hash_the_first_is_hit_until_it_is_taken():
    blocks = pool()
    first = blocks.allocate(1)
    second = blocks.allocate(1)
    blocks.cache(first[0], 101)
    blocks.cache(second[0], 101)
    assert blocks.cached_hashes == 1
    assert blocks.longest_hit([101], 9) == first
    blocks.release(first)
    blocks.allocate(9)
    assert blocks.longest_hit([101], 9) == second
    blocks.release(second)
    blocks.allocate(1)
    assert blocks.longest_hit([101], 9) == []
    assert blocks.cached_hashes == 0


def test_three_blocks_with_one_hash_are_hit_in_the_order_they_were_cached():
    blocks = pool()
    for block in blocks.allocate(3):
        blocks.cache(block, 101)
    blocks.release([1])
    blocks.allocate(8)
    assert blocks.longest_hit([101], 9) == [2]
    blocks.cache(2, 101)
    assert blocks.longest_hit([101], 9) == [2]


def test_a_reset_forgets_everything_but_not_while_a_block_is_held():
    blocks = pool()
    held = store(blocks, [101, 102])
    blocks.touch(held[:1])
    assert not blocks.reset()
    assert blocks.longest_hit([101, 102], 9) == held
    blocks.release(held[:1])
    assert blocks.reset()
    assert blocks.longest_hit([101, 102], 9) == []
    assert blocks.free_blocks == 10
    blocks.allocate(10)
    assert blocks.evicted_blocks == 0


def test_hashes_cover_whole_blocks_and_all_that_stands_before_them():
    ids = list(range(40))
    hashes = chain_hashes(ids, BLOCK_TOKENS)
    assert len(hashes) == 2
    assert chain_hashes(ids[:32], BLOCK_TOKENS) == hashes
    other_head = chain_hashes([99, *ids[1:]], BLOCK_TOKENS)
    assert other_head[0] != hashes[0]
    assert other_head[1] != hashes[1]
    other_tail = chain_hashes([*ids[:31], 99], BLOCK_TOKENS)
    assert other_tail[0] == hashes[0]
    assert other_tail[1] != hashes[1]
    assert chain_hashes(ids[:15], BLOCK_TOKENS) == []


def test_a_hash_is_the_xxh3_of_the_block_seeded_with_its_parent():
    first = xxh3_64_intdigest(array("I", range(16)).tobytes(), 0)
    second = xxh3_64_intdigest(array("I", range(16, 32)).tobytes(), first)
    assert chain_hashes(range(32), BLOCK_TOKENS) == [first, second]


def test_another_salt_is_another_prefix():
    ids = list(range(32))
    plain, salted, wide = (chain_hashes(ids, BLOCK_TOKENS, salt) for salt in (0, 1, (1 << 64) + 1))
    assert not set(plain) & set(salted)
    assert wide == salted


def test_odd_ids_are_packed_and_ready_ones_are_not_copied():
    ready = array("I", [1, 2])
    assert pack_ids(ready) is ready
    assert list(pack_ids((1, -1, (1 << 40) + 5))) == [1, (1 << 32) - 1, 5]
    assert list(pack_ids(array("q", [7]))) == [7]
