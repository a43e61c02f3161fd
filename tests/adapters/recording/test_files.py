"""The files of a recording: rotated, bounded, whole lines only, nobody else's replaced."""

from __future__ import annotations

import errno
import os
import resource
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from router.adapters.recording.files import Files
from router.adapters.recording.lines import MARK

OPENING = MARK + b"1}\n"
LINE = b"x" * 99 + b"\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "traffic"


def files(path: Path, lines_each: int = 3, most: int = 3) -> Files:
    """As many lines fit into each."""
    return Files(path, len(OPENING) + 100 * lines_each, most)


def lines_in(path: Path) -> int:
    opening, *lines = path.read_bytes().splitlines(keepends=True)
    assert opening == OPENING
    assert all(line == LINE for line in lines)
    return len(lines)


def test_a_full_file_gets_the_next_name_and_the_last_one_goes(path: Path) -> None:
    assert files(path).write(OPENING, [LINE] * 11) == 11
    assert {found.name: lines_in(found) for found in path.parent.iterdir()} == {
        "traffic": 2, "traffic.1": 3, "traffic.2": 3
    }  # fmt: skip


def test_one_file_alone_is_begun_anew(path: Path) -> None:
    files(path, most=1).write(OPENING, [LINE] * 4)
    assert {found.name: lines_in(found) for found in path.parent.iterdir()} == {"traffic": 1}


def test_calls_go_on_in_the_same_file_which_its_owner_alone_can_read(path: Path) -> None:
    target = files(path)
    for _ in range(2):
        target.write(OPENING, [LINE])
    assert lines_in(path) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_line_longer_than_a_file_is_written_all_the_same(path: Path) -> None:
    assert Files(path, 50, 2).write(OPENING, [LINE, LINE]) == 2
    assert lines_in(path) == lines_in(path.with_name("traffic.1")) == 1


def test_another_recording_is_kept_and_not_gone_on_with(path: Path) -> None:
    for count in (1, 2):
        target = files(path)
        target.write(OPENING, [LINE] * count)
        target.close()
    assert (lines_in(path), lines_in(path.with_name("traffic.1"))) == (2, 1)


@pytest.mark.parametrize("how", ["deleted", "moved"])
def test_a_file_that_is_gone_is_begun_anew(path: Path, how: str) -> None:
    target = files(path)
    target.write(OPENING, [LINE])
    if how == "deleted":
        path.unlink()
    else:
        path.rename(path.with_name("kept"))
    target.write(OPENING, [LINE, LINE])
    assert lines_in(path) == 2
    assert how == "deleted" or lines_in(path.with_name("kept")) == 1


def test_what_is_no_recording_is_left_alone(path: Path) -> None:
    path.write_text("dear diary")
    target = files(path)
    for attempt in (target.check, lambda: target.write(OPENING, [LINE])):
        with pytest.raises(FileExistsError, match="is not a recording"):
            attempt()
    assert path.read_text() == "dear diary"


def test_an_empty_file_is_taken_for_ones_own(path: Path) -> None:
    path.touch()
    files(path).write(OPENING, [LINE])
    assert [found.name for found in path.parent.iterdir()] == ["traffic"]


def test_what_another_router_writes_is_left_alone_until_it_ends(path: Path) -> None:
    first, second = files(path), files(path)
    first.write(OPENING, [LINE])
    with pytest.raises(OSError, match="another router records there"):
        second.write(OPENING, [LINE])
    assert lines_in(path) == 1
    first.close()
    second.write(OPENING, [LINE, LINE])
    assert (lines_in(path), lines_in(path.with_name("traffic.1"))) == (2, 1)


def test_a_pipe_holds_nobody_up(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(OSError, match="not a regular file"):
        files(path).check()


def test_a_folder_that_is_not_there_shows_early(path: Path) -> None:
    with pytest.raises(OSError, match="no folder that can be written to"):
        files(path / "missing" / "traffic").check()


@pytest.fixture
def size_limit() -> Iterator[int]:
    """Bytes that this process may write to one file, for a test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = len(OPENING) + 250
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_whole_lines_and_no_file_for_each_attempt(path: Path, size_limit: int) -> None:
    target = files(path, lines_each=100)
    assert target.write(OPENING, [LINE]) == 1
    for _ in range(3):
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            target.write(OPENING, [LINE, LINE])
    assert lines_in(path) == 1, "the line of which a part had room is taken back"
    assert target.write(OPENING, [LINE]) == 1
    assert [found.name for found in path.parent.iterdir()] == ["traffic"]
    assert path.stat().st_size <= size_limit
