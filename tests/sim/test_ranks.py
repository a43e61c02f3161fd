"""Data-parallel ranks of a simulated server, as vLLM 0.32 has them: one port, one cache each, a header that picks."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from router.sim.faults import Fault, FaultKind
from router.sim.server import SimOptions, SimReplica
from tests.sim.wire import CHAT, DEADLINE_S, LONG, MESSAGES, Wire, ask, request

OPTIONS = SimOptions(time_scale=1_000, data_parallel=4, dev_mode=True)
RANK = "X-data-parallel-rank"


def on_rank(rank: object, path: str = CHAT, **fields: Any) -> bytes:
    body = {"messages": LONG, "max_tokens": 1} | fields
    return request(path, body, headers={RANK: str(rank)})


def prompts(replica: SimReplica) -> list[int]:
    """Prompt tokens that each rank has been sent."""
    return [rank.driver.engine.stats.prompt_tokens for rank in replica.state.ranks.all]


async def cached(replica: SimReplica, data: bytes) -> int:
    answer = await ask(replica.port, data)
    assert answer.status == 200, answer.body
    tokens: int = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return tokens


async def test_the_header_picks_a_rank_and_each_has_a_cache_of_its_own() -> None:
    async with SimReplica(OPTIONS) as replica:
        assert await cached(replica, on_rank(2)) == 0
        assert await cached(replica, on_rank(3)) == 0
        assert await cached(replica, on_rank(2)) > 100
        assert [tokens > 0 for tokens in prompts(replica)] == [False, False, True, True]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/messages"])
async def test_completions_and_messages_go_where_the_header_says(path: str) -> None:
    async with SimReplica(OPTIONS) as replica:
        fields: dict[str, Any] = {"prompt": "one two three", "model": "sim-model"}
        answer = await ask(replica.port, on_rank(1, path, **(fields | {"messages": MESSAGES})))
        assert answer.status == 200, answer.body
        assert [tokens > 0 for tokens in prompts(replica)] == [False, True, False, False]


@pytest.mark.parametrize("rank", [-1, 4, 10**30])
async def test_a_rank_that_there_is_not_is_refused(rank: int) -> None:
    async with SimReplica(OPTIONS) as replica:
        answer = await ask(replica.port, on_rank(rank))
        assert answer.status == 400
        assert answer.json()["error"]["message"] == f"data_parallel_rank {rank} is out of range [0, 4)."
        assert answer.json()["error"]["type"] == "BadRequestError"
        assert prompts(replica) == [0, 0, 0, 0]


async def test_an_engine_that_is_not_data_parallel_has_rank_0_only() -> None:
    async with SimReplica(SimOptions(time_scale=1_000)) as replica:
        assert (await ask(replica.port, on_rank(0))).status == 200
        assert (await ask(replica.port, on_rank(1))).status == 400


@pytest.mark.parametrize("rank", ["", "two", "1.0"])
async def test_requests_that_ask_for_no_rank_are_spread(rank: str) -> None:
    async with SimReplica(OPTIONS) as replica:
        for _ in range(4):
            assert (await ask(replica.port, on_rank(rank))).status == 200
        assert all(prompts(replica))


async def test_without_a_header_the_rank_with_the_fewest_requests_is_taken() -> None:
    async with SimReplica(OPTIONS) as replica:
        replica.state.freeze()
        async with await Wire.open(replica.port) as wire:
            wire.send(request(CHAT, {"messages": MESSAGES, "max_tokens": 1}))
            await replica.wait_for(lambda: sum(rank.load for rank in replica.state.ranks.all) == 1, DEADLINE_S)
            busy = [rank.load for rank in replica.state.ranks.all].index(1)
            chosen = [replica.state.ranks.all.index(replica.state.ranks.least_loaded()) for _ in range(8)]
            assert busy not in chosen
            assert set(chosen) == {0, 1, 2, 3} - {busy}


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/embeddings"])
async def test_other_routes_do_not_look_at_the_header(path: str) -> None:
    """So it is with vLLM 0.32: these are balanced by the engine itself."""
    async with SimReplica(OPTIONS) as replica:
        for _ in range(4):
            answer = await ask(replica.port, on_rank(99, path, input="one two three"))
            assert answer.status == 200, answer.body
        assert all(prompts(replica))


def by_rank(text: str, metric: str) -> dict[str, float]:
    """One metric's samples by their engine label, of which none may come twice."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == metric:
                assert sample.labels["engine"] not in found
                found[sample.labels["engine"]] = sample.value
    return found


async def test_metrics_tell_the_ranks_apart() -> None:
    async with SimReplica(OPTIONS) as replica:
        await ask(replica.port, on_rank(2))
        text = (await ask(replica.port, request("/metrics"))).body.decode()
    assert by_rank(text, "vllm:cache_config_info") == dict.fromkeys("0123", 1.0)
    assert by_rank(text, "vllm:time_to_first_token_seconds_count") == {"0": 0, "1": 0, "2": 1, "3": 0}
    tokens = by_rank(text, "vllm:prompt_tokens_total")
    assert [rank for rank in "0123" if tokens[rank]] == ["2"]
    assert len([line for line in text.splitlines() if line.startswith("process_start_time_seconds ")]) == 1


@pytest.mark.parametrize("route", ["/sleep", "/pause"])
async def test_all_ranks_sleep_and_pause_together(route: str) -> None:
    async with SimReplica(OPTIONS) as replica:
        drivers = [rank.driver for rank in replica.state.ranks.all]
        await ask(replica.port, request(route, b"", method="POST"))
        assert all(driver.frozen for driver in drivers)
        paused = (await ask(replica.port, request("/is_paused"))).json()
        sleeping = (await ask(replica.port, request("/is_sleeping"))).json()
        assert (paused["is_paused"], sleeping["is_sleeping"]) == (True, route == "/sleep"), "who sleeps is paused too"
        await ask(replica.port, request("/wake_up" if route == "/sleep" else "/resume", b"", method="POST"))
        assert not any(driver.frozen for driver in drivers)
        assert (await ask(replica.port, request("/is_paused"))).json() == {"is_paused": False}


@pytest.mark.parametrize(("stop", "go_on"), [("/sleep", "/wake_up"), ("/pause", "/resume")])
async def test_caches_are_lost_while_an_engine_sleeps_or_pauses(stop: str, go_on: str) -> None:
    async with SimReplica(OPTIONS) as replica:
        await cached(replica, on_rank(1))
        assert await cached(replica, on_rank(1)) > 0
        for route in (stop, go_on):
            await ask(replica.port, request(route, b"", method="POST"))
        assert await cached(replica, on_rank(1)) == 0


async def test_a_restart_empties_every_rank() -> None:
    async with SimReplica(OPTIONS) as replica:
        for rank in range(4):
            await ask(replica.port, on_rank(rank))
        replica.faults.set(Fault(FaultKind.RESTART_COLD))
        assert prompts(replica) == [0, 0, 0, 0]
        assert await cached(replica, on_rank(3)) == 0


@pytest.mark.parametrize("ranks", [0, -1, 1025])
def test_a_number_of_ranks_out_of_range_is_refused(ranks: int) -> None:
    with pytest.raises(ValueError, match="data_parallel"):
        SimOptions(data_parallel=ranks)
