"""All that can go wrong with a watch."""

from __future__ import annotations

import asyncio

import pytest

from router.adapters.discovery.kubernetes.api import MAX_LINE_BYTES
from router.adapters.discovery.kubernetes.follow import Pace
from tests.adapters.discovery.clusters import HASTY, Opening, add, url, watching
from tests.adapters.discovery.hearing import Log, hearing
from tests.adapters.discovery.kubernetes_objects import pod
from tests.rig.kubernetes import FakeKubernetes
from tests.rig.kubernetes_words import line, status


async def test_what_a_watch_asks_for(cluster: FakeKubernetes, opened: Opening) -> None:
    async with hearing(opened(pace=Pace(relist_s=100.0, watch_s=7.0))) as heard:
        await watching(cluster, heard)
    asked = cluster.asked[-1]
    assert asked.query == {
        "labelSelector": "app=vllm", "watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "7",
        "resourceVersion": asked.query["resourceVersion"],
    }  # fmt: skip
    assert asked.token == "first-token"


async def test_a_watch_that_ends_in_time_goes_on_from_its_last_event(cluster: FakeKubernetes, opened: Opening) -> None:
    async with hearing(opened()) as heard:
        await watching(cluster, heard)
        add(cluster, 2)
        await heard.these(url(1), url(2))
        cluster.send(None)
        await cluster.watched(2)
        add(cluster, 3)
        await heard.these(url(1), url(2), url(3))
    assert cluster.count("list") == 1


async def test_a_bookmark_moves_a_watch_on(cluster: FakeKubernetes, opened: Opening) -> None:
    """Without it, what happened to other pods would have made its version too old."""
    async with hearing(opened()) as heard:
        await watching(cluster, heard)
        cluster.compact()
        cluster.bookmark()
        cluster.send(None)
        await cluster.watched(2)
        add(cluster, 2)
        await heard.these(url(1), url(2))
    assert cluster.count("list") == 1


async def test_a_version_that_is_too_old_at_the_beginning(cluster: FakeKubernetes, opened: Opening, log: Log) -> None:
    async with hearing(opened()) as heard:
        await watching(cluster, heard)
        add(cluster, 2)
        await heard.count(2)
        cluster.compact()
        cluster.send(None)
        await cluster.until(lambda: cluster.count("list") == 2)
        await cluster.watched(3)
        add(cluster, 3)
        await heard.these(url(1), url(2), url(3))
    assert log.warnings == []


async def test_a_version_that_is_too_old_in_the_middle(cluster: FakeKubernetes, opened: Opening, log: Log) -> None:
    async with hearing(opened()) as heard:
        await watching(cluster, heard)
        add(cluster, 2)
        await heard.count(2)
        cluster.delete("pods", "vllm-0", unseen=True)
        cluster.expire()
        await heard.these(url(2))
    assert cluster.count("list") == 2
    assert log.warnings == []


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        b'{"type":"DELETED","object":{"metadata":{"name":"vllm-0","names',
        b'{"type":"DELETED","object":{"metadata":{"name":"vllm-0","namespace":"default","uid":"uid-vllm-0"}}}',
    ],
)
async def test_a_connection_that_is_cut(cluster: FakeKubernetes, opened: Opening, log: Log, rest: bytes) -> None:
    """Half a line says nothing, and neither does one without its end; what happened meanwhile is listed."""
    async with hearing(opened()) as heard:
        await watching(cluster, heard)
        add(cluster, 2, labels={"app": "other"})
        cluster.cut(rest)
        add(cluster, 3)
        await heard.these(url(1), url(3))
        await cluster.watched(2)
    assert len(heard.lists) == 2
    assert cluster.count("list") == 2
    assert log.warnings == []


@pytest.mark.parametrize(
    "text",
    [
        b"no JSON at all\n",
        b"[]\n",
        b'{"type":"ADDED"}\n',
        b'{"type":"RENAMED","object":{}}\n',
        b'{"type":"ADDED","object":{"metadata":{"name":5}}}\n',
        line({"type": "ERROR", "object": status(500, "InternalError", "etcd is away")}),
        line({"type": "ERROR", "object": {}}),
        b"x" * (MAX_LINE_BYTES + 1),
    ],
    ids=lambda text: text[:20].decode(),
)
async def test_what_is_no_event_begins_a_list_anew(
    cluster: FakeKubernetes, opened: Opening, log: Log, text: bytes
) -> None:
    async with hearing(opened()) as heard:
        await watching(cluster, heard)
        cluster.delete("pods", "vllm-0", unseen=True)
        cluster.send(text)
        await heard.these()
    assert log.warnings == []


async def test_empty_lines_are_nothing(cluster: FakeKubernetes, opened: Opening) -> None:
    async with hearing(opened()) as heard:
        await watching(cluster, heard)
        cluster.send(b"\n\n")
        add(cluster, 2)
        await heard.these(url(1), url(2))
    assert cluster.count("list") == 1


async def test_silence(cluster: FakeKubernetes, opened: Opening, log: Log) -> None:
    """The connection stays up, no one speaks, and the server does not end it in time."""
    async with hearing(opened(pace=Pace(relist_s=3600.0, watch_s=1.0, margin_s=0.1))) as heard:
        await watching(cluster, heard)
        cluster.silent = True
        add(cluster, 2)
        await heard.these(url(1), url(2))
    assert cluster.count("list") == 2
    assert log.warnings == []


async def test_a_watch_that_goes_on_for_ever(cluster: FakeKubernetes, opened: Opening, log: Log) -> None:
    """The server speaks, but never of what has happened, and does not end the watch in time."""

    async def speak() -> None:
        while True:
            cluster.send(b"\n")
            await asyncio.sleep(0.02)

    async with hearing(opened(pace=Pace(relist_s=3600.0, watch_s=1.0, margin_s=0.1))) as heard:
        await watching(cluster, heard)
        cluster.silent = True
        speaking = asyncio.create_task(speak())
        cluster.delete("pods", "vllm-0")
        await heard.these()
        speaking.cancel()
    assert log.warnings == []


async def test_watches_that_end_at_once_are_no_reason_to_ask_without_end(
    cluster: FakeKubernetes, opened: Opening, log: Log
) -> None:
    cluster.brief = True
    async with hearing(opened()) as heard:
        await cluster.until(lambda: cluster.count("list") == 4)  # with pauses from the third one on
        assert cluster.count("watch") <= 4
        cluster.brief = False
        add(cluster, 2)
        await heard.these(url(1), url(2))
    assert log.warnings == []


async def test_a_deletion_that_is_never_told(cluster: FakeKubernetes, opened: Opening, log: Log) -> None:
    async with hearing(opened(pace=HASTY)) as heard:
        await watching(cluster, heard)
        cluster.delete("pods", "vllm-0", unseen=True)
        await heard.these()
    assert log.warnings == []


async def test_the_deletion_of_another_pod_of_that_name_is_not_this_one_s(
    cluster: FakeKubernetes, opened: Opening
) -> None:
    async with hearing(opened()) as heard:
        await watching(cluster, heard)
        cluster.send(line({"type": "DELETED", "object": pod("vllm-0", "older")}))
        add(cluster, 2)
        await heard.these(url(1), url(2))


async def test_the_source_gives_its_connection_back(cluster: FakeKubernetes, opened: Opening) -> None:
    async with hearing(opened()) as heard:
        await watching(cluster, heard)
    await cluster.until(lambda: not cluster.watches)
