"""Clients' keys: out of a setting, or out of a TOML file that is read again when it changes."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import tomllib
from hashlib import sha256
from pathlib import Path

import msgspec

from router.core.allowance import ClientKey, KeyLimits

LOGGER = logging.getLogger("warmroute.keys")

CHECK_S = 1.0
"""How often it is looked whether the file has changed."""

KEY_PREFIX = "wr-"
"""By which scanners and people tell a Warmroute key."""

_HEX_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")


class KeyFileError(ValueError):
    """A key file can't be used; the text is one line and quotes no key."""


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    sha256: str
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None
    tenant: str | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    keys: dict[str, _Entry] = {}


def new_key() -> str:
    """Make up a key of 256 random bits."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def digest_of(key: str) -> bytes:
    """Return what is kept of a key. Plain SHA-256 is enough for what nobody can guess: keys are no passwords."""
    return sha256(key.encode()).digest()


def listed(text: str, limits: KeyLimits) -> list[ClientKey]:
    """Return the keys of a list with commas. Each is named after its digest, which stays when the list changes."""
    digests = {digest_of(key.strip()): None for key in text.split(",") if key.strip()}
    return [ClientKey(f"key-{digest.hex()[:8]}", digest, limits) for digest in digests]


def stanza(name: str, key: str, limits: KeyLimits) -> str:
    """Return the lines of a key file for one key. Raises KeyFileError for a name that can't stand there."""
    _check_name(name)
    quoted = f'"{name}"' if re.search(r"[.@]", name) else name
    lines = [f"[keys.{quoted}]", f'sha256 = "{digest_of(key).hex()}"']
    lines += [f"{field} = {value}" for field, value in msgspec.structs.asdict(limits).items() if value]
    return "\n".join(lines) + "\n"


def read_keys(path: Path, limits: KeyLimits) -> list[ClientKey]:
    """Read a key file; `limits` are for keys that have none of their own. Raises KeyFileError."""
    try:
        return _parse(path.read_bytes(), limits)
    except OSError as error:
        raise KeyFileError(f"key file {path} can't be read: {error.strerror or error}") from None
    except KeyFileError as error:
        raise KeyFileError(f"key file {path}: {error}") from None


def _parse(data: bytes, limits: KeyLimits) -> list[ClientKey]:
    try:
        file = msgspec.convert(tomllib.loads(data.decode()), _File)
    except UnicodeDecodeError:
        raise KeyFileError("not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise KeyFileError(f"not TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise KeyFileError(str(error)) from None
    if not file.keys:
        raise KeyFileError("has no [keys.NAME]")  # as it looks, too, while somebody writes it
    keys = [_key(name, entry, limits) for name, entry in file.keys.items()]
    if len({key.digest for key in keys}) < len(keys):
        raise KeyFileError("one key stands under two names")
    return keys


def _key(name: str, entry: _Entry, limits: KeyLimits) -> ClientKey:
    _check_name(name)
    if not _HEX_DIGEST.fullmatch(entry.sha256):
        raise KeyFileError(f"sha256 of {name} is not 64 hexadecimal digits")
    own = {field: getattr(entry, field) for field in KeyLimits.__struct_fields__}
    for field, value in own.items():
        if value is not None and value < 0:
            raise KeyFileError(f"{field} of {name} is below 0")
    given = {field: value for field, value in own.items() if value is not None}
    return ClientKey(name, bytes.fromhex(entry.sha256), msgspec.structs.replace(limits, **given), entry.tenant)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise KeyFileError("a key's name has 1 to 64 of the characters A-Z a-z 0-9 _ . @ -")


class KeyFile:
    """A key file that may change. A bad one keeps the keys in force, and says why once."""

    def __init__(self, path: Path, limits: KeyLimits) -> None:
        """Read it. Raises KeyFileError."""
        self._path = path
        self._limits = limits
        self._stamp = _stamp(path)
        self._fault = ""
        self.keys = read_keys(path, limits)

    async def look(self) -> bool:
        """Read the file again if it has changed; return whether the keys have. Never raises.

        It is read beside the event loop: it may be on a network.
        """
        stamp = await asyncio.to_thread(_stamp, self._path)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            keys = await asyncio.to_thread(read_keys, self._path, self._limits)
        except KeyFileError as error:
            self._say(str(error))
            return False
        self._fault = ""
        changed, self.keys = keys != self.keys, keys
        if changed:
            LOGGER.info("key file %s has changed: %d keys", self._path, len(keys))
        return changed

    def _say(self, fault: str) -> None:
        if fault != self._fault:
            self._fault = fault
            LOGGER.warning("%s; the keys stay as they were", fault)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Return what changes with the file's content; None when it can't be looked at."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
