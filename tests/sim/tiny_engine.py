"""Tiny engines and requests for tests that compute their answers by hand."""

from collections.abc import Sequence

from router.sim.engine import Engine, EngineConfig, Event, Finished, SimRequest, Tokens

TINY = EngineConfig(kv_tokens=11 * 16)
"""10 usable blocks of 16 tokens."""
ROOMY = EngineConfig(kv_tokens=100_000)


def ids(start: int, count: int) -> list[int]:
    return list(range(start, start + count))


def ask(name: str, prompt: Sequence[int], output: Sequence[int] | int = 1, **more) -> SimRequest:
    return SimRequest(name, prompt, ids(900_000, output) if isinstance(output, int) else output, **more)


def run(engine: Engine, request: SimRequest) -> Finished:
    """Run one request alone and return its end. Time goes on from where the engine is."""
    assert engine.next_event_s() is None, "something else is running"
    assert engine.submit(request, 0.0)
    (*_, end) = run_out(engine)
    assert isinstance(end, Finished)
    return end


def run_out(engine: Engine) -> list[Event]:
    events: list[Event] = []
    while (at_s := engine.next_event_s()) is not None:
        events += engine.advance(at_s)
    return events


def tokens_of(events: list[Event], name: str) -> list[Tokens]:
    return [event for event in events if isinstance(event, Tokens) and event.request_id == name]


def end_of(events: list[Event], name: str) -> Finished:
    (end,) = [event for event in events if isinstance(event, Finished) and event.request_id == name]
    return end
