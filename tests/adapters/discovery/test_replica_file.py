"""A file of replicas while it is changed, badly changed, replaced and taken away."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from router.adapters.discovery.replica_file import MAX_FILE_BYTES, ReplicaFile
from router.adapters.discovery.source import open_source
from router.adapters.discovery.trouble import Unreadable
from router.ports import Discovery, Endpoint
from tests.adapters.discovery.hearing import Log, hearing


def text_of(*names: str) -> str:
    return "replicas = [\n" + "".join(f'  "http://{name}",\n' for name in names) + "]\n"


def write_new(file: Path, text: str) -> None:
    """Replace it as a careful program does."""
    new = file.with_name(f"{file.name}.new")
    new.write_text(text)
    new.replace(file)


def urls(found: Iterable[Endpoint] | None) -> list[str] | None:
    return None if found is None else [each.url for each in found]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "replicas.toml"


def source_of(file: Path) -> Discovery:
    return open_source(f"file:{file}", 0.01)


# Look by look


def test_the_first_look_reads_it_and_the_next_ones_do_not(file: Path) -> None:
    file.write_text(text_of("a", "b"))
    reader = ReplicaFile(str(file))
    assert urls(reader.look()) == ["http://a:80", "http://b:80"]
    assert reader.look() is None
    assert reader.look() is None


@pytest.mark.parametrize("write", [write_new, Path.write_text])
def test_a_change_counts_when_two_looks_find_the_same(file: Path, write: object) -> None:
    file.write_text(text_of("a"))
    reader = ReplicaFile(str(file))
    reader.look()
    write(file, text_of("a", "b"))  # type: ignore[operator]
    assert reader.look() is None
    assert urls(reader.look()) == ["http://a:80", "http://b:80"]
    assert reader.look() is None


def test_half_a_list_that_is_a_valid_one_is_not_taken(file: Path) -> None:
    file.write_text("[[replicas]]\nurl = 'http://a'\n[[replicas]]\nurl = 'http://b'\n")
    reader = ReplicaFile(str(file))
    reader.look()
    with file.open("w") as writing:
        for text in ("[[replicas]]\nurl = 'http://a'\n", "[[replicas]]\n", "url = 'http://c'\n"):
            writing.write(text)
            writing.flush()
            assert reader.look() is None
    assert urls(reader.look()) == ["http://a:80", "http://c:80"]


def test_a_mistake_is_told_at_each_look_until_it_is_mended(file: Path) -> None:
    file.write_text(text_of("a"))
    reader = ReplicaFile(str(file))
    reader.look()
    file.write_text("replicas = [")
    assert reader.look() is None
    for _ in range(3):
        with pytest.raises(Unreadable, match="no TOML"):
            reader.look()
    write_new(file, text_of("c"))
    with pytest.raises(Unreadable, match="no TOML"):  # it may still be written to
        reader.look()
    assert urls(reader.look()) == ["http://c:80"]


def test_a_file_that_comes_and_goes(file: Path) -> None:
    reader = ReplicaFile(str(file))
    with pytest.raises(Unreadable, match="No such file"):
        reader.look()
    file.write_text(text_of("a"))
    assert urls(reader.look()) == ["http://a:80"]
    aside = file.rename(file.with_suffix(".aside"))
    with pytest.raises(Unreadable, match="No such file"):
        reader.look()
    aside.rename(file)
    assert reader.look() is None
    assert reader.look() in (None, [Endpoint("http://a:80")])  # a rename changes a file's times on some systems


def test_a_link_to_another_file_is_another_file(tmp_path: Path) -> None:
    """As Kubernetes replaces a ConfigMap: a link to a folder is replaced, the file's own link stays."""
    for version, name in ("1", "a"), ("2", "b"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "replicas.toml").write_text(text_of(name))
    (tmp_path / "..data").symlink_to("1")
    (tmp_path / "replicas.toml").symlink_to("..data/replicas.toml")
    reader = ReplicaFile(str(tmp_path / "replicas.toml"))
    assert urls(reader.look()) == ["http://a:80"]
    (tmp_path / "..data_tmp").symlink_to("2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert reader.look() is None
    assert urls(reader.look()) == ["http://b:80"]


def test_same_size_and_time_as_before_is_still_a_change(file: Path) -> None:
    file.write_text(text_of("a"))
    reader = ReplicaFile(str(file))
    reader.look()
    before = file.stat()
    write_new(file, text_of("b"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    reader.look()
    assert urls(reader.look()) == ["http://b:80"]


def test_what_is_too_large_is_another_file(file: Path) -> None:
    with file.open("wb") as writing:
        writing.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(Unreadable, match="larger than"):
        ReplicaFile(str(file)).look()


# As the router sees it


async def test_each_change_comes_once(file: Path, log: Log) -> None:
    write_new(file, text_of("a"))
    async with hearing(source_of(file)) as heard:
        await heard.these("http://a:80")
        write_new(file, text_of("a", "b"))
        await heard.these("http://a:80", "http://b:80")
        write_new(file, text_of("a", "b") + "# a remark changes nothing\n")
        write_new(file, text_of())
        await heard.these()
    assert len(heard.lists) == 3
    assert log.warnings == []


async def test_a_mistake_keeps_the_list_and_is_told_once(file: Path, log: Log) -> None:
    write_new(file, text_of("a"))
    async with hearing(source_of(file)) as heard:
        await heard.these("http://a:80")
        write_new(file, "replicas = [{ url = 'http://b', wieght = 2 }]")
        await log.until(1)
        write_new(file, text_of("c"))
        await log.until(2)
        await heard.these("http://c:80")
    assert len(heard.lists) == 2
    assert log.warnings == [
        f"file:{file} can't be read, its last list stays good: "
        "replicas[0]: 'wieght' is unknown; did you mean weight?",
        f"file:{file} can be read again",
    ]


async def test_a_file_that_is_not_there_yet(file: Path, log: Log) -> None:
    async with hearing(source_of(file)) as heard:
        await log.until(1)
        assert heard.lists == []
        write_new(file, text_of("a"))
        await heard.these("http://a:80")
    assert [text.partition(" ")[2] for text in log.warnings] == [
        "can't be read, its last list stays good: No such file or directory", "can be read again",
    ]  # fmt: skip
