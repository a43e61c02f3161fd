"""The demo's client over simulated replicas: what it counts is what the engine counts."""

import json
import socket
from collections.abc import AsyncIterator

import httpx
import pytest

from router.app.demo.chats import MODEL, Answer, Pace, ask, drive
from router.app.demo.pooled import pooled_hit_ratio
from router.sim.faults import Fault, FaultKind
from router.sim.server import SimOptions, SimReplica
from router.sim.types import EngineConfig
from router.sim.workload import ChatWorkload

KV_TOKENS = 30_000
ENGINE = EngineConfig(kv_tokens=KV_TOKENS, stream_interval=50)
AT_ONCE = Pace(wall_per_workload_s=0.0, wall_per_think_s=0.0)
NO_END_S = 50.0


@pytest.fixture
async def replica() -> AsyncIterator[SimReplica]:
    replica = SimReplica(SimOptions(engine=ENGINE, time_scale=5000.0))
    await replica.start()
    yield replica
    await replica.stop()


async def sequential(replica: SimReplica, workload: ChatWorkload) -> list[Answer]:
    answers = []
    async with httpx.AsyncClient(base_url=replica.url, trust_env=False) as client:
        for session in workload.sessions():
            turn = session.next_turn()
            while turn is not None:
                answers.append(await ask(client, turn))
                turn = session.next_turn(answers[-1].text)
    return answers


async def test_the_pooled_cache_of_one_replica_is_that_replica(replica: SimReplica) -> None:
    """Turn by turn, evictions included: the chats are several times the cache."""
    answers = await sequential(replica, ChatWorkload(sessions_per_s=1.0, duration_s=25.0, seed=3))
    assert sum(answer.uncached_tokens for answer in answers) > KV_TOKENS, "nothing was evicted"
    reported = sum(answer.cached_tokens for answer in answers) / sum(answer.prompt_tokens for answer in answers)
    assert pooled_hit_ratio(answers, KV_TOKENS, ENGINE.block_tokens) == pytest.approx(reported)


async def test_the_planned_prompt_is_what_the_replica_counted(replica: SimReplica) -> None:
    for answer in await sequential(replica, ChatWorkload(sessions_per_s=1.0, duration_s=4.0, seed=5)):
        assert answer.prompt_tokens == answer.turn.prompt_tokens


async def test_each_request_names_the_model(replica: SimReplica) -> None:
    workload = ChatWorkload(sessions_per_s=1.0, duration_s=4.0, seed=5)
    await sequential(replica, workload)
    assert {json.loads(arrival.body)["model"] for arrival in replica.requests} == {MODEL}


async def test_how_late_each_process_is_is_seen_beside_the_chats(replica: SimReplica) -> None:
    """A replica that is stuck counts too: its answer is still out when the run ends."""
    never = Pace(wall_per_workload_s=1000.0, wall_per_think_s=0.0)
    sessions = ChatWorkload(sessions_per_s=1.0, duration_s=4.0, seed=5).sessions()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        watched = {"replicas": f"{replica.url}/health", "stuck": f"http://127.0.0.1:{silent.getsockname()[1]}/"}
        outcome = await drive(replica.url, sessions, never, 0.5, lambda _: None, watched=watched)
    late_s = outcome.lateness.p95_s(time_scale=5.0)
    assert set(late_s) == {"client", "replicas", "stuck"}
    assert len(outcome.lateness.seen_s["stuck"]) == 1


async def test_driving_ends_with_the_last_session_and_tells_of_each_answer(replica: SimReplica) -> None:
    sessions = list(ChatWorkload(sessions_per_s=1.0, duration_s=4.0, seed=5).sessions())
    told: list[int] = []
    outcome = await drive(
        replica.url, sessions, AT_ONCE, NO_END_S, lambda so_far: told.append(len(so_far.answers)), watched={}
    )
    assert told == list(range(1, sum(len(session.turns) for session in sessions) + 1))
    assert outcome.failures == []
    assert 0 < outcome.hit_ratio < 1


async def test_driving_ends_when_its_time_is_up(replica: SimReplica) -> None:
    never = Pace(wall_per_workload_s=1000.0, wall_per_think_s=0.0)
    sessions = ChatWorkload(sessions_per_s=1.0, duration_s=4.0, seed=5).sessions()
    assert (await drive(replica.url, sessions, never, 0.01, lambda _: None, watched={})).answers == []


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault(FaultKind.STATUS, count=1, status=503), "status 503"),
        (Fault(FaultKind.DIE_AFTER_CHUNKS, count=1, after_chunks=1), "Error"),
        (Fault(FaultKind.DIE_AFTER_CHUNKS, count=1, after_chunks=1, abort=False), "Error"),
        (Fault(FaultKind.STREAM_ERROR, count=1, after_chunks=1), "without usage"),
        (Fault(FaultKind.RESET_BEFORE_FIRST_BYTE, count=1), "Error"),
    ],
)
async def test_a_failed_request_ends_its_session_and_no_other(fault: Fault, says: str, replica: SimReplica) -> None:
    workload = ChatWorkload(sessions_per_s=1.0, duration_s=4.0, seed=5)
    sessions = [session for session in workload.sessions() if len(session.turns) > 1]
    replica.faults.set(fault)
    outcome = await drive(replica.url, sessions, AT_ONCE, NO_END_S, lambda _: None, watched={})
    assert len(outcome.failures) == 1
    assert says in outcome.failures[0]
    finished = [answer for answer in outcome.answers if answer.turn.last]
    assert len(finished) == len(sessions) - 1
