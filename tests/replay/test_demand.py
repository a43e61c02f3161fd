"""Clients: what they ask, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from router.replay.chats import Chats
from router.replay.demand import Agents, ClosedLoop, OpenLoop
from router.sim.blocks import chain_hashes
from tests.replay.worlds import asked


def test_a_request_as_router_and_engine_take_it() -> None:
    recorded = replace(asked(7.0, [5, 6, 7, 8], more=-15), finish_reason="length", session_id="s")
    (client,) = OpenLoop("", [recorded]).clients(1)
    job = client.next_job()
    assert job is not None and job.request.prompt is not None
    # The prompt has 25 tokens; the last two blocks are the answer's.
    assert job.request.prompt.hashes == [5, 6]
    assert job.request.prompt.ends_bytes == [40, 80]
    assert (job.request.body_bytes, job.prompt_tokens) == (100, 25)
    assert (job.simulated.block_hashes, job.simulated.finish_reason) == ([5, 6, 7, 8], "length")
    assert job.session is not None
    assert client.next_job() is None


def test_the_routers_own_blocks_where_they_were_recorded() -> None:
    recorded = replace(asked(0.0, [5, 6]), prompt_hashes=(91, 92), prompt_ends_tokens=(4, 25))
    job = OpenLoop("", [recorded]).clients(1)[0].next_job()
    assert job is not None and job.request.prompt is not None
    assert (job.request.prompt.hashes, job.request.prompt.ends_bytes) == ([91, 92], [16, 100])
    assert job.simulated.block_hashes == [5, 6]


def test_less_than_a_block_has_no_key() -> None:
    job = OpenLoop("", [asked(0.0, [], more=3)]).clients(1)[0].next_job()
    assert job is not None
    assert (job.request.prompt, job.session) == (None, None)


def test_open_loop_by_time_stamps() -> None:
    requests = [asked(float(at_s), [at_s]) for at_s in range(0, 1_000, 100)]
    faster = OpenLoop("", requests, rate_scale=4.0)
    assert [client.starts_s for client in faster.clients(1)] == [25.0 * n for n in range(10)]
    assert faster.duration_s == 225.0
    # The next seed begins 300 s later in the trace; where that is its end, at its beginning again.
    assert [client.starts_s for client in OpenLoop("", requests).clients(2)] == [100.0 * n for n in range(7)]
    assert len(OpenLoop("", requests).clients(4)) == 10


def test_closed_loop_starts_faster_and_thinks_as_long() -> None:
    session = [asked(100.0, [1]), replace(asked(160.0, [1, 2]), think_s=20.0), asked(170.0, [1, 2, 3])]
    loop = ClosedLoop("", [session], rate_scale=2.0)
    (client,) = loop.clients(1)
    assert (client.starts_s, loop.duration_s) == (50.0, 50.0)
    jobs = [job for _ in range(4) if (job := client.next_job()) is not None]
    # The third has no think time of its own: all that lies between the two arrivals.
    assert [job.think_s for job in jobs] == [0.0, 20.0, 10.0]
    assert len({job.session for job in jobs}) == 1


def test_agents_share_nothing_and_replace_ended_sessions() -> None:
    sessions = [[asked(0.0, [1, 2]), replace(asked(9.0, [1, 2, 3]), think_s=5.0), asked(20.0, range(500))]]
    agents = Agents("", sessions, live=2, spread_s=60.0, most_tokens=1_000)
    one, other = agents.clients(1)
    jobs = [one.next_job() for _ in range(6)]
    assert [job.prompt_tokens for job in jobs[1:]] in ([35, 25, 35, 25, 35], [25, 35, 25, 35, 25])
    assert jobs[0].think_s == 0.0
    assert {job.think_s for job in jobs[1:]} == {0.0, 5.0}
    assert len({job.session for job in jobs}) > 2
    mine, others = (set(job.simulated.block_hashes or ()) for job in (jobs[0], other.next_job()))
    assert mine and others and not mine & others
    assert all(0.0 <= client.starts_s <= 60.0 for client in (one, other))


def test_chats_name_the_blocks_that_the_engine_would_hash() -> None:
    client = Chats(2.0, 60.0).clients(1)[0]
    first, second = client.next_job(), client.next_job()
    assert first is not None and second is not None
    known, later = first.simulated.block_hashes or (), second.simulated.block_hashes or ()
    assert len(known) == (first.prompt_tokens + len(first.simulated.output_token_ids)) // 16
    # The second turn's prompt goes on from the first one and its answer, but for markers at the very end.
    assert list(known[:-1]) == list(later[: len(known) - 1])
    assert first.request.prompt is not None
    assert first.bytes_per_token == pytest.approx(first.request.prompt.total_bytes / first.prompt_tokens)
    assert known[0] != chain_hashes(range(16), 16)[0]


def test_batch_clients() -> None:
    clients = Chats(5.0, 200.0, batch_ratio=0.2).clients(1)
    jobs = [job for client in clients if (job := client.next_job()) is not None]
    assert 0.1 < sum(job.request.batch for job in jobs) / len(jobs) < 0.3
