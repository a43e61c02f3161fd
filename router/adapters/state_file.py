"""The state file: a snapshot on disk, replaced whole or not at all.

One line says whose file it is, in which layout and byte order; 16 bytes of xxh3 over the rest, which is MessagePack.
The checksum is against accidents. Who can write the file is trusted, hence its mode 0600.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec
import xxhash

from router.core.snapshot import LAYOUT, Snapshot

LOGGER = logging.getLogger("warmroute.state")

_MAGIC = b"warmroute state "
_HEADER = _MAGIC + f"{LAYOUT} {sys.byteorder}\n".encode()
_MAX_HEADER_BYTES = 64
_CHECKSUM_BYTES = 16


class Saved(msgspec.Struct, frozen=True, array_like=True):
    """What is in a state file."""

    salt: bytes
    """Key of the replicas' ids: with it the same addresses have the same ids again."""
    snapshot: Snapshot
    history: bytes = b""
    """What the admin API shows of the past, in a layout of its own: what can't be read of it spoils nothing else."""


class _UnusableError(Exception):
    """The file says nothing that can be used; the message says why."""


_decoder = msgspec.msgpack.Decoder(Saved)


def write(path: Path, saved: Saved) -> None:
    """Replace the file by one that holds `saved`, and wait until the disk has it.

    Raises OSError; the old file is then still there, or already the new one. A file that is not a state file is not
    replaced: somebody may have mistaken one path for another.
    """
    path = Path(os.path.realpath(path))
    _refuse_foreign(path)
    body = msgspec.msgpack.encode(saved)
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.writelines((_HEADER, xxhash.xxh3_128_digest(body), body))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _refuse_foreign(path: Path) -> None:
    try:
        with _open(path) as file:
            if not _begins_as_ours(file.read(len(_MAGIC))):
                raise FileExistsError(errno.EEXIST, "it is not a state file of Warmroute and is not overwritten")
    except FileNotFoundError:
        return


def _begins_as_ours(start: bytes) -> bool:
    return start == _MAGIC[: len(start)]


def _sync_folder(folder: Path) -> None:
    """Have the disk know the file's new name as well."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(path: Path) -> Saved | None:
    """Return what the file holds; None when there is none, and after one warning when it can't be used."""
    try:
        with _open(path) as file:
            return _read(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = f"can't be read: {error.strerror or error}"
    except _UnusableError as error:
        reason = str(error)
    LOGGER.warning("state file %s %s; starting without what was known", path, reason)
    return None


def _open(path: Path) -> BinaryIO:
    """Open a file for reading. A pipe or a device, on which one could wait for ever, is an OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return os.fdopen(descriptor, "rb")


def _read(file: BinaryIO) -> Saved:
    header = file.readline(_MAX_HEADER_BYTES)
    if not _begins_as_ours(header[: len(_MAGIC)]):
        raise _UnusableError("is not a state file of Warmroute")
    if header != _HEADER:
        whole = header.endswith(b"\n") and len(header) > len(_MAGIC)
        raise _UnusableError("was written by another version of Warmroute" if whole else "is damaged")
    checksum, body = file.read(_CHECKSUM_BYTES), file.read()
    if xxhash.xxh3_128_digest(body) != checksum:
        raise _UnusableError("is damaged")
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError:
        raise _UnusableError("is damaged") from None
