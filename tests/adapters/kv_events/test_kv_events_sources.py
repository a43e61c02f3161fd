from typing import Any

import pytest

from router.adapters.kv_events.sources import Given, Source, SourceError, listed_sources, read_given

CONFIG = {
    "enable_kv_cache_events": True, "publisher": "zmq", "endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5558",
    "topic": "kv@pod1@tiny",
}  # fmt: skip


def listed(**changes: Any) -> dict[int, Source]:
    return listed_sources({"0": CONFIG | changes}, "gpu-1")


def test_what_an_engine_says_of_itself() -> None:
    assert listed() == {0: Source("tcp://gpu-1:5557", "tcp://gpu-1:5558", b"kv@pod1@tiny")}
    assert listed(replay_endpoint=None)[0].replay is None
    assert listed(endpoint="tcp://[::]:5557")[0].events == "tcp://gpu-1:5557"
    assert listed(endpoint="ipc:///tmp/events")[0].events == "ipc:///tmp/events"
    assert listed_sources({"0": CONFIG}, "fd00::1")[0].events == "tcp://[fd00::1]:5557"
    assert listed_sources({}, "gpu-1") == {}


def test_an_engine_that_connects_has_nothing_to_connect_to() -> None:
    assert listed(endpoint="tcp://router:5557")[0] == Source(None, "tcp://gpu-1:5558", b"kv@pod1@tiny")


def test_who_publishes_nothing_is_no_source() -> None:
    assert listed(publisher="null") == listed(enable_kv_cache_events=False) == {}


@pytest.mark.parametrize("listing", [None, [], "text", {"0": None}, {"x": CONFIG}, {"0": {"enable_kv_cache_events": 1,
                                     "publisher": "zmq"}}])  # fmt: skip
def test_another_answer_is_refused(listing: Any) -> None:
    with pytest.raises(SourceError):
        listed_sources(listing, "gpu-1")


def test_what_is_given_for_all_and_for_one() -> None:
    for_all = read_given("tcp://*:5557?replay=5657")
    assert for_all == Given(None, "*", 5557, 5657, "")
    assert for_all.of_rank(2, "gpu-1") == Source("tcp://gpu-1:5559", "tcp://gpu-1:5659", b"")
    for_one = read_given("http://gpu-1:8000=tcp://10.0.0.1:5557?topic=kv@a")
    assert for_one == Given("http://gpu-1:8000", "10.0.0.1", 5557, None, "kv@a")
    assert for_one.of_rank(0, "gpu-1") == Source("tcp://10.0.0.1:5557", None, b"kv@a")


@pytest.mark.parametrize(
    "text", ["", "tcp://", "tcp://a", "tcp://a:x", "tcp://a:99999", "tcp://a:1?replay=x", "tcp://a:1?replay=0",
             "tcp://a:1?port=2", "tcp://a:1?replay=70000"],
)  # fmt: skip
def test_mistakes_in_what_is_given(text: str) -> None:
    with pytest.raises(SourceError):
        read_given(text)
