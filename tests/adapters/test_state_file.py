"""A file that can't be used costs a warning and nothing else. The one that is there is replaced whole or not at all."""

import logging
import os
import stat
import sys
from pathlib import Path

import msgspec
import pytest
import xxhash
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from router.adapters.state_file import Saved, read, write
from router.core.snapshot import LAYOUT, restore, take
from tests.core.worlds import answered, chat, fleet_of

STORY = "a long story, " * 300
SALT = bytes(range(16))
not_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")


def saved() -> Saved:
    fleet = fleet_of(2)
    for number in range(4):
        answered(fleet, chat(("user", f"{number} {STORY}"), session=str(number)), now=number)
    return Saved(SALT, take(fleet, 10.0))


GOOD = saved()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "warmroute.state"


def refused(path: Path, caplog: pytest.LogCaptureFixture) -> str:
    """Read a file that can't be used; return its one warning."""
    caplog.clear()
    assert read(path) is None
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("warmroute.state", logging.WARNING)
    assert str(path) in record.getMessage()
    assert "\n" not in record.getMessage()
    return record.getMessage()


def test_what_is_written_comes_back(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(path, GOOD)
    assert read(path) == GOOD
    assert not caplog.records


def test_a_snapshot_that_came_back_can_be_restored(path: Path) -> None:
    write(path, GOOD)
    back = read(path)
    assert back is not None
    fleet = fleet_of(2)
    restore(fleet, back.snapshot, 1.0)
    assert fleet.explain(chat(("user", f"1 {STORY}"), ("assistant", "ok"), ("user", "go on")), 1.0).reason == "warm"


def test_no_file_yet_is_no_news(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read(path) is None
    assert not caplog.records


def test_it_is_for_its_owner_only_and_leaves_nothing_beside_it(path: Path) -> None:
    before = os.umask(0)
    try:
        write(path, GOOD)
        write(path, GOOD)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_it_is_replaced_and_not_written_over(path: Path) -> None:
    """Whoever has the old one open reads the old one to its end."""
    write(path, GOOD)
    old_bytes = path.read_bytes()
    with path.open("rb") as old:
        write(path, Saved(SALT, take(fleet_of(1), 1.0)))
        assert old.read() == old_bytes
    assert path.read_bytes() != old_bytes


def test_what_a_killed_write_left_is_no_obstacle(path: Path) -> None:
    path.with_name(path.name + ".new").write_bytes(b"half")
    write(path, GOOD)
    assert read(path) == GOOD
    assert list(path.parent.iterdir()) == [path]


def test_a_link_stays_a_link(path: Path, tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    path.symlink_to(tmp_path / "volume" / "state")
    write(path, GOOD)
    assert path.is_symlink()
    assert read(path) == read(tmp_path / "volume" / "state") == GOOD


def test_no_byte_of_it_can_change_unnoticed(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every byte of the head and every 31st behind it, with one bit turned over."""
    write(path, GOOD)
    good = path.read_bytes()
    for position in [*range(80), *range(80, len(good), 31), len(good) - 1]:
        bad = bytearray(good)
        bad[position] ^= 1 << position % 8
        path.write_bytes(bad)
        refused(path, caplog)


def test_no_part_of_it_is_taken_for_the_whole(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(path, GOOD)
    good = path.read_bytes()
    for length in [*range(80), *range(80, len(good), 97), len(good) - 1]:
        path.write_bytes(good[:length])
        assert "is damaged" in refused(path, caplog)
    path.write_bytes(good + b"\0")
    assert "is damaged" in refused(path, caplog)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=200))
@example(b"\x80")
@example(b"[replica]\n" * 100)
def test_any_other_file_is_refused(path: Path, caplog: pytest.LogCaptureFixture, content: bytes) -> None:
    path.write_bytes(content)
    refused(path, caplog)


@pytest.mark.parametrize("head", [f"{LAYOUT + 1} {sys.byteorder}", f"{LAYOUT} middle", "12 little with more"])
def test_another_version_is_refused_by_that_name_and_replaced(
    path: Path, caplog: pytest.LogCaptureFixture, head: str
) -> None:
    write(path, GOOD)
    path.write_bytes(f"warmroute state {head}\n".encode() + path.read_bytes().partition(b"\n")[2])
    assert "another version" in refused(path, caplog)
    write(path, GOOD)
    assert read(path) == GOOD


@pytest.mark.parametrize("content", [b"", b"warmrou", b"warmroute state 1 little\nnothing"])
def test_a_damaged_file_is_replaced(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    write(path, GOOD)
    assert read(path) == GOOD


def test_a_file_that_is_not_a_state_file_is_neither_used_nor_overwritten(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(b"[warmroute]\nport = 8080\n")
    assert "is not a state file" in refused(path, caplog)
    with pytest.raises(FileExistsError, match="not overwritten"):
        write(path, GOOD)
    assert path.read_bytes() == b"[warmroute]\nport = 8080\n"
    assert list(path.parent.iterdir()) == [path]


def test_a_checksum_over_something_else_does_not_make_a_state_file(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(path, GOOD)
    head = path.read_bytes().partition(b"\n")[0] + b"\n"
    for content in (b"", b"\xc1", msgspec.msgpack.encode({}), msgspec.msgpack.encode([b"", [1, [], [], [], 5]])):
        path.write_bytes(head + xxhash.xxh3_128_digest(content) + content)
        assert "is damaged" in refused(path, caplog)


def test_a_folder_in_its_place(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.mkdir()
    assert "can't be read" in refused(path, caplog)
    with pytest.raises(OSError):
        write(path, GOOD)
    assert list(path.parent.iterdir()) == [path]


def test_a_pipe_in_its_place_is_not_waited_for(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkfifo(path)
    assert "can't be read" in refused(path, caplog)
    with pytest.raises(OSError):
        write(path, GOOD)


def test_no_folder_for_it(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write(path / "below" / "state", GOOD)


def test_what_stands_in_the_way_of_the_new_one_stays(path: Path) -> None:
    """A folder under the temporary name, as a stand-in for a place where nothing can be written."""
    write(path, GOOD)
    path.with_name(path.name + ".new").mkdir()
    with pytest.raises(OSError):
        write(path, Saved(SALT, take(fleet_of(1), 1.0)))
    assert read(path) == GOOD


@not_root
def test_a_folder_that_can_not_be_written(path: Path) -> None:
    path.parent.chmod(0o500)
    try:
        with pytest.raises(PermissionError):
            write(path, GOOD)
    finally:
        path.parent.chmod(0o700)


@not_root
def test_a_file_that_can_not_be_read_is_not_replaced(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(path, GOOD)
    path.chmod(0)
    assert "can't be read: Permission denied" in refused(path, caplog)
    with pytest.raises(PermissionError):
        write(path, GOOD)
