"""A thousand open streams pass, and further requests do not wait for a pool."""

import asyncio
from functools import partial

from router.sim.replica import SimReplica
from tests.rig.client import DEADLINE_S, Answer, Client, chat
from tests.rig.stage import Stage


def has_connections(replica: SimReplica, count: int) -> bool:
    return replica.open_connections >= count


async def test_a_thousand_open_streams_pass_and_three_hundred_more_requests_do_not_wait(stage: Stage) -> None:
    replicas = await stage.replicas(4, recorded_requests=0, sse_keep_alive_s=60.0)
    router = await stage.router(*replicas)
    for replica in replicas:
        replica.state.driver.freeze()
    streams = [await stage.client(router) for _ in range(1_000)]
    for client in streams:
        client.send(chat(stream=True, max_tokens=2))
    await router.until(lambda: sum(count for count, _ in router.in_flight.values()) == 1_000)
    for replica in replicas:
        await replica.wait_for(partial(has_connections, replica, 250), DEADLINE_S)
    replicas[3].state.driver.thaw()
    others = [await stage.client(router) for _ in range(300)]
    for replica in replicas[:3]:
        router.books(replica).health.drain(router.house.plane.clock())

    async def ask(client: Client) -> Answer:
        return await client.ask(chat())

    answers = await asyncio.gather(*map(ask, others))
    assert {answer.status for answer in answers} == {200}
    for replica in replicas[:3]:
        replica.state.driver.thaw()
    for client in streams:
        answer = await client.answer()
        assert answer.events()[-1] == "[DONE]"
    await router.idle()
