"""Keyed hashes: equal where what they hash is, and of no use without the key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.adapters.recording.keyed import KEY_BYTES, Keyed

KEY = bytes(range(KEY_BYTES))
NUMBERS = st.integers(0, 2**64 - 1)


def test_a_hash_is_the_first_half_of_a_block_of_aes() -> None:
    zeros = Keyed(bytes(KEY_BYTES))
    # NIST's known answer of AES-256 for a key and a block of zeros (AESAVS, appendix C).
    assert zeros.hashes([0]).hex() == "dc95c078a2408989"
    assert zeros.hashes([]) == b""


@given(st.lists(NUMBERS, min_size=1, max_size=50, unique=True))
def test_each_value_has_its_own_wherever_it_stands(values: list[int]) -> None:
    keyed = Keyed(KEY)
    whole = keyed.hashes(values)
    each = [keyed.hashes([value]) for value in values]
    assert whole == b"".join(each)
    assert len(set(each)) == len(values)


@given(NUMBERS)
def test_another_key_gives_another_hash(value: int) -> None:
    other = Keyed(bytes(KEY_BYTES))
    assert Keyed(KEY).hashes([value]) != other.hashes([value]) != value.to_bytes(8, "little")
    assert Keyed(KEY).session("s-1") != other.session("s-1")


def test_names_are_short_and_no_session_is_a_name() -> None:
    keyed = Keyed(KEY)
    assert len(keyed.name("gpt")) == 8
    assert len(keyed.session("gpt")) == 16
    assert not keyed.session("gpt").startswith(keyed.name("gpt"))
    assert keyed.name("gpt") == Keyed(KEY).name("gpt") != keyed.name("gpt-2")
