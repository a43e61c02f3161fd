"""The recorder: what it counts, what it says, what it does at its end."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from router.adapters.recording import recorder as module
from router.adapters.recording.counts import RecordingCounts
from router.adapters.recording.files import Files
from router.adapters.recording.keyed import KEY_BYTES
from router.adapters.recording.lines import Lines
from router.adapters.recording.recorder import MOST_WAITING_BYTES, Recorder
from router.core.fleet import Fleet
from router.core.types import Prompt, RoutingRequest
from tests.adapters.records import record

REQUEST = RoutingRequest("m", "chat", Prompt([11, 12, 13], [512, 1024, 2000], [], None), 1)


def recorder(path: Path, counts: RecordingCounts) -> Recorder:
    return Recorder(Lines(bytes(KEY_BYTES), 0.0, 0.0), Files(path, 1 << 20, 2), Fleet(), counts)


def sizes_bytes(folder: Path) -> list[int]:
    return [path.stat().st_size for path in folder.iterdir()]


async def test_the_end_writes_what_waits(tmp_path: Path) -> None:
    counts = RecordingCounts()
    target = recorder(tmp_path / "traffic", counts)
    for _ in range(5):
        target.request_finished(record(), REQUEST, 0)
    assert not (tmp_path / "traffic").exists()
    await target.close()
    assert len((tmp_path / "traffic").read_bytes().splitlines()) == 6
    assert (counts.written, counts.dropped, counts.trouble) == (5, 0, None)


async def test_an_end_without_a_request_leaves_no_file(tmp_path: Path) -> None:
    await recorder(tmp_path / "traffic", RecordingCounts()).close()
    assert not sizes_bytes(tmp_path)


async def test_trouble_is_said_once_and_its_end_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    counts, folder = RecordingCounts(), tmp_path / "later"
    target = recorder(folder / "traffic", counts)
    target.check()
    for _ in range(2):
        target.request_finished(record(), REQUEST, 0)
        await target.close()
    assert (counts.written, counts.dropped) == (0, 2)
    assert list(counts.collect())[1].samples[0].value == 0.0
    folder.mkdir()
    target.request_finished(record(), REQUEST, 0)
    await target.close()
    assert (counts.written, counts.dropped, counts.trouble) == (1, 2, None)
    assert [entry.getMessage().rpartition("traffic")[2].partition(":")[0] for entry in caplog.records] == ["", " again"]


async def test_what_waits_is_bounded(tmp_path: Path) -> None:
    counts = RecordingCounts()
    target = recorder(tmp_path / "traffic", counts)
    blocks = 20_000
    long = Prompt(list(range(blocks)), [512 * (place + 1) for place in range(blocks)], [], None)
    request = REQUEST._replace(prompt=long)
    count = 0
    while not counts.dropped:
        target.request_finished(record(), request, 0)
        count += 1
    await target.close()
    assert counts.written == count - 1
    assert sum(sizes_bytes(tmp_path)) > 1 << 20, "what waited was more than one file"


def test_a_line_waits_for_a_second_at_the_most() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "record-traffic.md").read_text()
    assert module.FLUSH_S == 1.0
    assert "within a second" in page
    assert f"up to {MOST_WAITING_BYTES >> 20} MiB of lines" in page
