"""The record: what a person reads and what the next check reads agree."""

from __future__ import annotations

import pytest

from router.replay.advice.arithmetic import GIB
from router.replay.advice.choice import Tried, choose
from router.replay.advice.ladder import Sizes, ladder
from router.replay.advice.measured import measure
from router.replay.advice.record import Data, Decision, RecordError, Sized, facts_of, markdown, read_data
from router.replay.report.figures import figures_of
from router.replay.run import run
from tests.replay.advice.worlds import PEOPLE_TALK, ROOMY

SIZES = Sizes(GIB, 1e6 * GIB, 1e6 * GIB, host_gib=(20_000,))


@pytest.fixture(scope="module")
def decision() -> Decision:
    result, measured = measure(ROOMY, PEOPLE_TALK)
    rungs = ladder(ROOMY, measured, SIZES)[:3]
    tried = [Tried(rungs[0], figures_of(result))]
    tried += [Tried(rung, figures_of(run(rung.plan, PEOPLE_TALK))) for rung in rungs[1:]]
    choice = choose(tried, 3.0)
    data = Data(
        date="2026-11-30",
        workload="five people",
        target_ttft_p95_s=3.0,
        fleet=Sized(
            replicas=1, kv_tokens=10_000, prefill_tokens_per_s=100.0, model_profile="default", kv_token_bytes=GIB
        ),
        recommended=choice.chosen.rung.name,
        met=choice.met,
        replayed=facts_of(measured, "Qwen3-8B", None, "570.1"),
    )
    return Decision(data, measured, ["asked: a router"], tried, choice, SIZES, "Qwen/Qwen3-8B", 1, ("a note",))


def test_a_person_finds_all_of_it(decision: Decision) -> None:
    text = markdown(decision)
    for line in (
        "# What to keep between turns: five people",
        "- Date: 2026-11-30",
        "- Fleet: 1 x 10,000 KV tokens of 1,073,741,824 bytes, 100 prefill tokens/s (profile default)",
        "**free, prefix cache**; costs: nothing.",
        "As it is, TTFT p95 is 2.00 s, within the target of 3 s. Nothing need be paid for.",
        "vllm serve Qwen/Qwen3-8B --enable-prompt-tokens-details --kv-cache-metrics",
        "- think times: 30.0 s at the median, 30.0 s at p90; 66.7% of requests go on from an earlier one",
        "- a pinned session would be idle for 88% of the time: its turns take 4.0 s in the engine",
        "- cache of a session: 617 tokens, 617.00 GiB at the median, 617 tokens, 617.00 GiB at p95",
        "- prefill of a full history: 6.00 s at the median, 6.00 s at p95",
        "- to hold all present sessions (5 at the fullest moment): 3,085.0 GiB, 3,085 tokens; all GPU caches have "
        "10,000.0 GiB, 10,000 tokens",
        "| free, prefix cache | 50.0 | 100.0 | 2.00 | 2.00 | 0.0 | nothing |",
        "- asked: a router",
        "- a note",
        "- hits at peak have fallen by 5 points",
    ):
        assert line in text.splitlines(), line


def test_a_program_finds_its_data(decision: Decision) -> None:
    assert read_data(markdown(decision)) == decision.data
    assert read_data("```json\n{}\n```\n\n" + markdown(decision)) == decision.data


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it holds no data"),
        ("```json\n{}\n```", "it holds no data"),
        ('```json\n{"warmroute_advice": 1}\n```', "its data can't be read: Object missing required field `date`"),
        ('```json\n{"warmroute_advice": 1, \n}\n```', "its data can't be read: JSON is malformed"),
    ],
)
def test_what_is_no_record(text: str, problem: str) -> None:
    with pytest.raises(RecordError, match=problem):
        read_data(text)
