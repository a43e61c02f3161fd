from router.core.engine_cache.cache import EngineCache
from router.core.engine_cache.turns import anchor_key, turn_key
from router.core.engine_cache.types import Held, Medium, Stored
from router.core.prompt import PromptBuilder
from tests.core.engine_cache.worlds import stored

FIRST, SECOND, OTHER = 11, 12, 13
LABEL, NEXT_LABEL = 501, 502


def answered() -> EngineCache:
    """A turn of 14 tokens, prompt and answer: 13 of them computed, so 3 blocks."""
    cache = EngineCache()
    cache.turns.begin(FIRST, LABEL, alone=False)
    cache.stored(stored([901, 902], range(8), label=LABEL))
    cache.stored(stored([903], range(8, 12), parent=902, label=LABEL))
    return cache


def test_a_turn_is_held_up_to_its_last_block() -> None:
    assert answered().left_of_turn(FIRST, 14) == Held(12)


def test_a_turn_is_evicted_from_its_end() -> None:
    cache = answered()
    cache.removed([903])
    assert cache.left_of_turn(FIRST, 14) == Held(8)
    cache.removed([902])
    assert cache.left_of_turn(FIRST, 14) == Held(4)
    cache.removed([901])
    assert cache.left_of_turn(FIRST, 14) == Held(0)


def test_turns_that_share_a_beginning_are_each_evicted_down_to_it() -> None:
    cache = answered()
    for number, (key, label) in enumerate(((SECOND, NEXT_LABEL), (OTHER, 503))):
        cache.turns.begin(key, label, alone=False)
        tokens = range(100 * (number + 1), 100 * (number + 1) + 4)
        cache.stored(stored([1000 + number], tokens, parent=902, label=label))
    cache.removed([903, 1001, 1000])
    assert [cache.left_of_turn(key, 14) for key in (FIRST, SECOND, OTHER)] == [Held(8)] * 3
    cache.removed([902])
    assert [cache.left_of_turn(key, 14) for key in (FIRST, SECOND, OTHER)] == [Held(4)] * 3
    cache.removed([901])
    assert [cache.left_of_turn(key, 14) for key in (FIRST, SECOND, OTHER)] == [Held(0)] * 3


def test_blocks_that_do_not_add_up_say_nothing() -> None:
    assert answered().left_of_turn(FIRST, 17) is None
    assert answered().left_of_turn(FIRST, 12) is None
    assert answered().left_of_turn(OTHER, 14) is None


def test_a_turn_that_fills_no_block_has_those_of_the_one_before() -> None:
    cache = answered()
    cache.turns.begin(SECOND, NEXT_LABEL, alone=False, origin=FIRST)
    assert cache.left_of_turn(SECOND, 16) == Held(12)
    cache.removed([903])
    assert cache.left_of_turn(SECOND, 16) == Held(8)


def test_the_same_prompt_again_keeps_its_blocks() -> None:
    cache = answered()
    cache.turns.begin(FIRST, NEXT_LABEL, alone=False)
    assert cache.left_of_turn(FIRST, 14) == Held(12)


def test_blocks_behind_those_of_another_turn_are_this_ones() -> None:
    cache = answered()
    cache.turns.begin(SECOND, NEXT_LABEL, alone=False, origin=FIRST)
    cache.stored(stored([904, 905], range(12, 20), parent=903, label=NEXT_LABEL))
    assert cache.left_of_turn(SECOND, 22) == Held(20)
    assert cache.left_of_turn(FIRST, 14) == Held(12)


def test_what_left_the_gpu_counts_where_it_is() -> None:
    cache = answered()
    cache.stored(Stored([902, 903], None, stored([], range(0)).token_ids, 0, None), Medium.CPU)
    cache.removed([902, 903])
    assert cache.left_of_turn(FIRST, 14) == Held(4, 8)


def test_without_labels_a_request_that_is_alone_is_known() -> None:
    cache = EngineCache()
    cache.turns.begin(FIRST, LABEL, alone=True)
    cache.stored(stored([901, 902, 903], range(12)))
    assert cache.left_of_turn(FIRST, 14) == Held(12)
    cache.turns.begin(SECOND, NEXT_LABEL, alone=False)
    cache.stored(stored([911, 912, 913], range(100, 112)))
    assert cache.left_of_turn(SECOND, 14) is None


def test_an_engine_that_names_sessions_means_others_where_it_names_none() -> None:
    cache = answered()
    cache.turns.begin(SECOND, NEXT_LABEL, alone=True)
    cache.stored(stored([911, 912, 913], range(100, 112)))
    assert cache.left_of_turn(SECOND, 14) is None


def test_keys_of_chats_and_of_texts() -> None:
    chat = PromptBuilder(1)
    chat.add(b"user", b"u" * 700)
    asked = chat.build()
    chat.add(b"assistant", b"a" * 100)
    chat.add(b"user", b"b" * 100)
    followed = chat.build()
    assert asked is not None and followed is not None
    blocks = len(asked.hashes)
    assert turn_key(asked) == anchor_key(followed, blocks, followed.ends_bytes[blocks - 1])
    text, longer = PromptBuilder(1), PromptBuilder(1)
    text.add_open(b"text", b"t" * 700)
    longer.add_open(b"text", b"t" * 900)
    short, long = text.build(), longer.build()
    assert short is not None and long is not None
    assert turn_key(short) == anchor_key(long, 1, 700) != turn_key(long)
