"""A recording of live chats, replayed offline, gives the hit rate that was seen live."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from router.replay.demand import OpenLoop
from router.replay.plan import Plan, Result
from router.replay.run import run
from router.replay.traces.formats import Trace, read_trace
from router.sim.types import EngineConfig
from tests.rig.client import request
from tests.rig.stage import Stage
from tests.rig.talks import BLOCK_TOKENS, ChatTalk, text

SPEED = 100.0
"""By how much the replicas' time goes faster. More, and the router's own milliseconds would count for as much as the
engines' work."""

CHATS = 24
REQUESTS = 160


class LongTalk(ChatTalk):
    """Turns of some 600 tokens: what is lost to the rounding of blocks is little beside them."""

    def say(self) -> str:
        self.turns += 1
        return text(self.number * 100 + self.turns, 700)


def engine_live(kv_tokens: int) -> EngineConfig:
    return EngineConfig(kv_tokens=kv_tokens, block_tokens=BLOCK_TOKENS)


def engine_replayed(kv_tokens: int) -> EngineConfig:
    """The same in the recording's time."""
    return EngineConfig(
        kv_tokens=kv_tokens, block_tokens=BLOCK_TOKENS, prefill_tokens_per_s=8_000.0 * SPEED, decode_s=0.020 / SPEED,
        decode_per_seq_s=0.0003 / SPEED,
    )  # fmt: skip


def replayed(trace: Trace, policy: str) -> Result:
    assert trace.fleet is not None
    engine = engine_replayed(trace.fleet.kv_tokens)
    return run(Plan(policy, engine, replicas=trace.fleet.replicas, minutes=60.0), OpenLoop("live", trace.requests))


def hit_ratio(result: Result) -> float:
    prompt_tokens = sum(one.prompt_tokens for one in result.answered)
    return sum(one.cached_tokens for one in result.answered) / prompt_tokens


@pytest.mark.parametrize(
    ("policy", "count", "kv_tokens"), [("affinity", 1, 40_000), ("round-robin", 3, 26_880)], ids=["one", "three"]
)
async def test_a_replay_hits_what_the_engines_hit_live(
    stage: Stage, tmp_path: Path, policy: str, count: int, kv_tokens: int
) -> None:
    """Where requests go does not hang on how busy the test's machine is: on one replica, or on each in turn."""
    path = tmp_path / "traffic"
    replicas = await stage.replicas(count, engine=engine_live(kv_tokens), time_scale=SPEED)
    router = await stage.router(*replicas, watched=True, record=path, policy=policy)
    await router.until(lambda: all(router.books(replica).report.kv_tokens for replica in replicas))
    client, chance = await stage.client(router), Random(7)
    talks = [LongTalk(number, stream=number % 2 == 0) for number in range(CHATS)]
    prompt_tokens = cached_tokens = 0
    for _ in range(REQUESTS):
        talk = chance.choice(talks)
        answer = await client.ask(request(talk.path, {"model": "sim-model", "max_tokens": 60} | talk.ask()))
        assert answer.status == 200, answer.body
        prompt, cached = talk.take(answer)
        prompt_tokens, cached_tokens = prompt_tokens + prompt, cached_tokens + cached
    await router.idle()
    await router.house.recording.close()

    trace = read_trace(path.read_text().splitlines())
    assert trace.fleet is not None
    assert (trace.fleet.replicas, trace.fleet.kv_tokens, trace.fleet.block_tokens) == (count, kv_tokens, BLOCK_TOKENS)
    assert sum(one.prompt_tokens for one in trace.requests) == prompt_tokens
    assert len(trace.requests) == REQUESTS
    assert len(trace.sessions) == sum(talk.turns > 0 for talk in talks)
    live = cached_tokens / prompt_tokens
    result = replayed(trace, policy)
    assert live < result.ceiling_ratio - 0.2, "the caches are short: what is replayed is their eviction"
    assert hit_ratio(result) == pytest.approx(live, abs=0.02)
