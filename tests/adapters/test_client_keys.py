"""Clients' keys: listed in a setting, or in a file that may change."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from router.adapters.client_keys import (
    KEY_PREFIX,
    KeyFile,
    KeyFileError,
    digest_of,
    listed,
    new_key,
    read_keys,
    stanza,
)
from router.core.allowance import KeyLimits

DEFAULTS = KeyLimits(requests_per_minute=60)


def write(path: Path, text: str) -> None:
    """Replace the file whole, as editors and ConfigMaps do."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.toml"


def test_a_file_has_names_digests_and_limits(path: Path) -> None:
    write(path, stanza("alice", "secret-a", KeyLimits(5, 1000, 2)) + stanza("bob@x.y", "secret-b", KeyLimits()))
    alice, bob = read_keys(path, DEFAULTS)
    assert (alice.name, alice.digest, alice.limits) == ("alice", digest_of("secret-a"), KeyLimits(5, 1000, 2))
    assert (bob.name, bob.limits, bob.tenant) == ("bob@x.y", DEFAULTS, None)
    assert "secret" not in path.read_text()


def test_zero_in_the_file_takes_a_default_limit_off_and_tenants_are_read(path: Path) -> None:
    text = f'[keys.a]\nsha256 = "{digest_of("k").hex().upper()}"\nrequests_per_minute = 0\ntenant = "team"\n'
    write(path, text)
    (key,) = read_keys(path, DEFAULTS)
    assert (key.limits.requests_per_minute, key.tenant, key.digest) == (0, "team", digest_of("k"))


BAD = {
    "no TOML": "[keys",
    "no keys": "",
    "a key in clear": '[keys.a]\nkey = "secret-a"\n',
    "a short digest": '[keys.a]\nsha256 = "abcd"\n',
    "a limit below 0": f'[keys.a]\nsha256 = "{"0" * 64}"\nrequests_per_minute = -1\n',
    "a limit in words": f'[keys.a]\nsha256 = "{"0" * 64}"\nrequests_per_minute = "many"\n',
    "one key twice": f'[keys.a]\nsha256 = "{"0" * 64}"\n[keys.b]\nsha256 = "{"0" * 64}"\n',
    "a name with a line feed": f'[keys."a\\nb"]\nsha256 = "{"0" * 64}"\n',
    "another table": "[kays]\n",
}


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in BAD.items()])
def test_a_bad_file_is_refused_in_one_line_that_quotes_no_key(path: Path, text: str) -> None:
    write(path, text)
    with pytest.raises(KeyFileError) as caught:
        read_keys(path, DEFAULTS)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "secret-a" not in str(caught.value)


def test_a_file_that_is_missing_is_refused(path: Path) -> None:
    with pytest.raises(KeyFileError, match="No such file"):
        read_keys(path, DEFAULTS)


def test_a_list_of_keys_is_named_after_digests() -> None:
    one, two = listed(" secret-a, secret-b ,,secret-a", DEFAULTS)
    assert one.name == f"key-{digest_of('secret-a').hex()[:8]}"
    assert two.digest == digest_of("secret-b")
    assert listed("secret-b", DEFAULTS)[0].name == two.name


def test_keys_are_long_and_never_the_same() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(key.startswith(KEY_PREFIX) and len(key) == len(KEY_PREFIX) + 43 for key in keys)


async def test_a_changed_file_is_read_again(path: Path) -> None:
    write(path, stanza("a", "one", KeyLimits()))
    file = KeyFile(path, DEFAULTS)
    assert not await file.look()
    write(path, stanza("b", "two", KeyLimits()))
    assert await file.look()
    assert [key.name for key in file.keys] == ["b"]


def spoil(path: Path, number: int) -> None:
    path.write_text("[keys")
    os.utime(path, ns=(number, number))


async def test_a_bad_file_keeps_the_old_keys_and_says_why_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(path, stanza("a", "one", KeyLimits()))
    file = KeyFile(path, DEFAULTS)
    for number in range(3):
        spoil(path, number)
        assert not await file.look()
    path.rename(path.with_suffix(".gone"))  # noqa: ASYNC240
    assert not await file.look()
    assert not await file.look()
    assert [key.name for key in file.keys] == ["a"]
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 2
    assert all("the keys stay as they were" in warning for warning in warnings)
    write(path, stanza("c", "three", KeyLimits()))
    assert await file.look()
