"""The decision as a dated page, and the data in it that a later look needs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import msgspec

from router.replay.advice.choice import Choice, Tried
from router.replay.advice.figures import cells, headings, measured_lines
from router.replay.advice.flags import commands, remark
from router.replay.advice.ladder import Sizes
from router.replay.advice.measured import Measured
from router.replay.advice.triggers import LONGER_RATIO, LOST_RATIO, MORE_RATIO, Facts

_BLOCK = re.compile(r"^```json\n(\{.*?\})\n```$", re.MULTILINE | re.DOTALL)


class RecordError(ValueError):
    """A text holds no data of a record."""


class Sized(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet that was replayed."""

    replicas: int
    kv_tokens: int
    """Of each."""
    prefill_tokens_per_s: float
    model_profile: str
    kv_token_bytes: int


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """What a record holds for programs."""

    warmroute_advice: int = 1
    date: str
    workload: str
    target_ttft_p95_s: float
    fleet: Sized
    recommended: str
    met: bool
    replayed: Facts
    live: Facts | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """All that a record tells."""

    data: Data
    measured: Measured
    live_lines: list[str]
    """Of a running router, as they are to be read; empty without one."""
    tried: Sequence[Tried]
    choice: Choice
    sizes: Sizes
    model: str
    gpus: int
    notes: Sequence[str] = ()


def facts_of(measured: Measured, model: str | None, vllm_version: str | None, driver: str | None) -> Facts:
    """Return what a later look compares with."""
    return Facts(
        model=model,
        vllm_version=vllm_version,
        driver=driver,
        prompt_p95_tokens=_known(measured.prompt_p95_tokens),
        requests_per_s=_known(measured.requests_per_s),
        sessions_per_s=_known(measured.sessions_per_s),
        peak_hit_ratio=_known(measured.peak_hit_ratio),
    )


def markdown(decision: Decision) -> str:
    """Return the record."""
    data, choice = decision.data, decision.choice
    parts = [
        f"# What to keep between turns: {data.workload}",
        f"- Date: {data.date}\n- Workload: {data.workload}\n- Fleet: {_fleet(data.fleet)}\n"
        f"- Target: TTFT p95 of {data.target_ttft_p95_s:g} s",
        f"## Recommendation\n\n**{choice.chosen.rung.name}**"
        f"{'' if choice.met else ' (misses the target)'}; costs: {choice.chosen.rung.costs}.\n\n{choice.reason}",
        _commands(decision),
        "## Measured\n\n" + _bullets(lines_of(decision)),
        *(["## Live\n\n" + _bullets(decision.live_lines)] if decision.live_lines else []),
        "## Tried\n\n" + _table(decision.tried),
        *([_bullets(decision.notes)] if decision.notes else []),
        "## Decide again when\n\n" + _bullets(_retests()),
        "## Data\n\nFor `warmroute advise --check`.\n\n```json\n" + _json(data) + "\n```",
    ]
    return "\n\n".join(parts) + "\n"


def lines_of(decision: Decision) -> list[str]:
    """Return what was measured, as it is to be read."""
    fleet = decision.data.fleet
    fleet_tokens = fleet.replicas * fleet.kv_tokens
    return measured_lines(decision.measured, decision.sizes, fleet.prefill_tokens_per_s, fleet_tokens)


def read_data(text: str) -> Data:
    """Return the data of a record. RecordError: it holds none that can be read."""
    for block in _BLOCK.findall(text):
        if "warmroute_advice" in block:
            try:
                return msgspec.json.decode(block, type=Data)
            except msgspec.MsgspecError as error:
                raise RecordError(f"its data can't be read: {error}") from None
    raise RecordError("it holds no data of `warmroute advise`")


def _commands(decision: Decision) -> str:
    rung = decision.choice.chosen.rung
    said = remark(rung)
    lines = "\n".join(commands(rung, decision.model, decision.gpus))
    return f"## Flags\n\nOn each replica:\n\n```sh\n{lines}\n```" + (f"\n\n{said}" if said else "")


def _fleet(fleet: Sized) -> str:
    return (
        f"{fleet.replicas:,} x {fleet.kv_tokens:,} KV tokens of {fleet.kv_token_bytes:,} bytes, "
        f"{fleet.prefill_tokens_per_s:,.0f} prefill tokens/s (profile {fleet.model_profile})"
    )


def _retests() -> list[str]:
    return [
        "the model is another one",
        "the driver, the GPU or the release of vLLM is another one",
        f"contexts are longer: the 95th percentile of prompts is {LONGER_RATIO:g} times as long",
        f"requests/s are {MORE_RATIO:g} times as many",
        f"a second team shares the fleet: another model, or {MORE_RATIO:g} times as many new sessions/s",
        f"hits at peak have fallen by {LOST_RATIO * 100:g} points",
    ]


def _table(tried: Sequence[Tried]) -> str:
    rows = [headings(), ["---"] * len(headings()), *(cells(one) for one in tried)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _json(data: Data) -> str:
    return msgspec.json.format(msgspec.json.encode(data), indent=1).decode()


def _known(figure: float) -> float | None:
    return figure if isfinite(figure) else None
