"""W3C Trace Context: what is continued, what is not believed, and which traces are sampled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

from router.adapters.tracing.context import Origin, origin

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{PARENT}-01"


def read(*traceparents: str, states: tuple[str, ...] = (), ratio: float = 1.0) -> Origin:
    headers = [(b"traceparent", text.encode()) for text in traceparents]
    return origin([*headers, *((b"tracestate", text.encode()) for text in states)], ratio)


@pytest.mark.parametrize(
    ("traceparent", "flags"),
    [
        (GOOD, 1),
        (f" {GOOD}\t", 1),
        (f"00-{TRACE}-{PARENT}-00", 0),
        (f"00-{TRACE}-{PARENT}-03", 3),
        (f"00-{TRACE}-{PARENT}-ff", 3),
        (f"cc-{TRACE}-{PARENT}-01", 1),
        (f"cc-{TRACE}-{PARENT}-01-what-the-future-brings", 1),
    ],
)
def test_a_good_one_is_continued_whatever_the_ratio(traceparent: str, flags: int) -> None:
    for ratio in (0.0, 1.0):
        found = read(traceparent, ratio=ratio)
        assert found.lines(1) == Origin(int(TRACE, 16), None, flags, b"").lines(1)
        assert found.parent_id == int(PARENT, 16)
        assert found.sampled == bool(flags & 1)


@pytest.mark.parametrize(
    "traceparent",
    [
        "",
        "00",
        "hello",
        GOOD.upper(),
        GOOD[:-1],
        GOOD + "0",
        GOOD + "-",
        GOOD + "-more",
        GOOD.replace("-", "_"),
        f"ff-{TRACE}-{PARENT}-01",
        f"cc-{TRACE}-{PARENT}-01.more",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}g-{PARENT}-01",
    ],
)
def test_for_a_malformed_one_a_new_trace_begins_without_its_state(traceparent: str) -> None:
    found = read(traceparent, states=("vendor=1",))
    assert found.parent_id is None
    assert found.trace_id not in (0, int(TRACE, 16))
    assert found.state == b""
    assert found.sampled


def test_two_of_them_are_none() -> None:
    assert read(GOOD, GOOD).parent_id is None


def test_the_state_goes_on_as_it_came_and_several_are_one() -> None:
    found = read(GOOD, states=("congo=t61,rojo=00", "a=b"))
    assert found.state == b"congo=t61,rojo=00,a=b"
    assert found.lines(0xABC) == (
        f"traceparent: 00-{TRACE}-0000000000000abc-01\r\ntracestate: congo=t61,rojo=00,a=b\r\n".encode()
    )
    assert read(GOOD).lines(0xABC).count(b"\r\n") == 1
    assert read(states=("a=b",)).state == b"", "a state alone is of no trace"


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.integers(0, 3))
def test_what_is_written_is_read_again(trace_id: int, span_id: int, flags: int) -> None:
    written = Origin(trace_id, None, flags, b"a=b").lines(span_id)
    pairs = [line.split(b": ") for line in written.splitlines()]
    assert origin([(name, value) for name, value in pairs], 0.0) == (trace_id, span_id, flags, b"a=b")


@given(st.floats(0.0, 1.0))
def test_the_sampled_ones_are_those_that_the_sdk_would_sample(ratio: float) -> None:
    """So a fleet of routers and other services of one ratio agree on whole traces."""
    found = origin([], ratio)
    assert found.flags in (0, 1)
    assert found.sampled == TraceIdRatioBased(ratio).should_sample(None, found.trace_id, "").decision.is_sampled()


def test_none_and_all() -> None:
    assert not any(origin([], 0.0).sampled for _ in range(50))
    assert all(origin([], 1.0).sampled for _ in range(50))
