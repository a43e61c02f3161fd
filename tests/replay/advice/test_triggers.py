"""When it is time to decide again: each trigger at its threshold, and just below."""

from __future__ import annotations

import msgspec
import pytest

from router.replay.advice.triggers import Facts, triggers

BEFORE = Facts(
    model="Qwen3-8B",
    models=("chat",),
    vllm_version="0.32.0",
    driver="570.1",
    prompt_p95_tokens=1_000.0,
    requests_per_s=2.0,
    sessions_per_s=0.5,
    peak_hit_ratio=0.7,
)


def fired(now: Facts, before: Facts = BEFORE) -> list[str]:
    return [trigger.name for trigger in triggers(before, now) if trigger.fired]


def test_nothing_has_changed() -> None:
    assert fired(BEFORE) == []
    assert all(trigger.fired is False for trigger in triggers(BEFORE, BEFORE))


@pytest.mark.parametrize(
    ("field", "below", "at", "name"),
    [
        ("prompt_p95_tokens", 1_249.0, 1_250.0, "longer contexts: prompt p95, tokens"),
        ("requests_per_s", 2.99, 3.0, "requests/s"),
        ("sessions_per_s", 0.74, 0.75, "second team: new sessions/s"),
        ("peak_hit_ratio", 0.651, 0.65, "hits at peak"),
        ("model", "Qwen3-8B", "Qwen3-14B", "new model"),
        ("vllm_version", "0.32.0", "0.33.0", "vLLM release"),
        ("driver", "570.1", "575.0", "driver"),
        ("models", ("chat",), ("chat", "legal"), "second team: another model"),
    ],
)
def test_thresholds(field: str, below: object, at: object, name: str) -> None:
    assert fired(msgspec.structs.replace(BEFORE, **{field: below})) == []
    assert fired(msgspec.structs.replace(BEFORE, **{field: at})) == [name]


def test_less_of_everything_is_no_reason() -> None:
    now = Facts(prompt_p95_tokens=10.0, requests_per_s=0.0, sessions_per_s=0.0, peak_hit_ratio=1.0)
    assert fired(now) == []


def test_what_is_not_known_neither_fires_nor_holds() -> None:
    for before, now in ((BEFORE, Facts()), (Facts(), BEFORE)):
        assert [trigger.fired for trigger in triggers(before, now)] == [None] * 8
    assert triggers(BEFORE, Facts())[0].told == "Qwen3-8B -> not known"


def test_figures_are_told() -> None:
    now = Facts(prompt_p95_tokens=45_000.0, requests_per_s=2.5, peak_hit_ratio=0.625)
    told = {trigger.name: trigger.told for trigger in triggers(BEFORE, now)}
    assert told["longer contexts: prompt p95, tokens"] == "1,000 -> 45,000"
    assert told["requests/s"] == "2 -> 2.5"
    assert told["hits at peak"] == "70.0% -> 62.5%"
