"""What a secret does: hashes that only its owners can make, bulletins that only they can read."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.adapters.redis_store.sealing import CHECK_BYTES, HASH_BYTES, Keyring

BULLETIN = b"router A has sent 4,711 tokens to replica r1"
VALUES = (0, 1, 0x0123_4567_89AB_CDEF, 2**64 - 1)


def test_without_a_secret_hashes_go_as_they_are() -> None:
    plain = Keyring(None)
    assert not plain.keyed
    assert [plain.keyed_hash(value) for value in VALUES] == [value.to_bytes(8, "big") for value in VALUES]
    assert plain.check(0x0123_4567_89AB_CDEF) == 0x0123_4567_89AB
    assert plain.seal("A", 1, BULLETIN) == plain.unseal("A", 1, BULLETIN) == BULLETIN


def test_keyed_hashes_differ_by_secret_and_tell_nothing_of_the_hash() -> None:
    one, other = Keyring("one"), Keyring("other")
    assert one.keyed
    for value in VALUES:
        hashes = [one.keyed_hash(value), other.keyed_hash(value), value.to_bytes(8, "big"), value.to_bytes(8, "little")]
        assert len(set(hashes[:2])) == 2
        assert not set(hashes[:2]) & set(hashes[2:])
        assert len(hashes[0]) == HASH_BYTES
        assert one.check(value) != other.check(value)


@given(st.integers(0, 2**64 - 1))
def test_a_check_is_what_a_lua_number_holds(value: int) -> None:
    for keyring in (Keyring(None), Keyring("secret")):
        assert 0 <= keyring.check(value) < 2 ** (8 * CHECK_BYTES)
        assert int(float(keyring.check(value))) == keyring.check(value)


@pytest.mark.parametrize("secret", [None, "correct horse", "zwölf Boxkämpfer"])
def test_hashes_and_salts_are_the_same_in_another_process(secret: str | None) -> None:
    keyring = Keyring(secret)
    here = [*map(keyring.keyed_hash, VALUES), *map(keyring.check, VALUES), keyring.salt(b"warmroute")]
    program = (
        "from router.adapters.redis_store.sealing import Keyring\n"
        f"k = Keyring({secret!r})\n"
        f"print([*map(k.keyed_hash, {VALUES}), *map(k.check, {VALUES}), k.salt(b'warmroute')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True, timeout=30)
    assert done.stdout.strip() == repr(here)


def test_salts_differ_by_secret_and_by_prefix() -> None:
    salts = {Keyring(secret).salt(prefix) for secret in (None, "a", "b") for prefix in (b"one", b"two")}
    assert len(salts) == 6
    assert {len(salt) for salt in salts} == {16}


def test_who_has_the_secret_reads_a_sealed_bulletin() -> None:
    sealed = Keyring("secret").seal("A", 7, BULLETIN)
    assert Keyring("secret").unseal("A", 7, sealed) == BULLETIN
    for start in range(len(BULLETIN) - 4):
        assert BULLETIN[start : start + 4] not in sealed


def test_nobody_else_reads_it_and_it_is_not_read_in_anothers_place() -> None:
    sealed = Keyring("secret").seal("A", 7, BULLETIN)
    reader = Keyring("secret")
    assert Keyring("other").unseal("A", 7, sealed) is None
    assert reader.unseal("B", 7, sealed) is None
    assert reader.unseal("A", 8, sealed) is None
    assert reader.unseal("A", 7, BULLETIN) is None


@pytest.mark.parametrize("length", [0, 1, 15, 16])
def test_what_is_too_short_to_be_sealed_is_not_read(length: int) -> None:
    assert Keyring("secret").unseal("A", 7, Keyring("secret").seal("A", 7, BULLETIN)[:length]) is None


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_bulletin_with_a_changed_byte_is_not_read(at: int, bits: int) -> None:
    sealed = bytearray(Keyring("secret").seal("A", 7, BULLETIN))
    sealed[at % len(sealed)] ^= bits
    assert Keyring("secret").unseal("A", 7, bytes(sealed)) is None


def test_the_same_words_never_look_the_same() -> None:
    """Each number is a nonce of its own, and each router's start has a key of its own."""
    keyring = Keyring("secret")
    sealed = {keyring.seal(router, number, BULLETIN) for router in ("A1", "A2", "B") for number in range(300)}
    assert len(sealed) == 900
    first_blocks = {one[:16] for one in sealed}
    assert len(first_blocks) == 900, "with one nonce under one key the same text would begin the same"


def test_a_router_that_was_forgotten_is_read_again_when_it_comes_back() -> None:
    keyring = Keyring("secret")
    sealed = Keyring("secret").seal("A", 7, BULLETIN)
    assert keyring.unseal("A", 7, sealed) == BULLETIN
    keyring.forget("A")
    keyring.forget("never heard of")
    assert keyring.unseal("A", 7, sealed) == BULLETIN
