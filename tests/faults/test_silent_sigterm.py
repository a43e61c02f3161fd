"""vLLM after SIGTERM: it accepts nothing, and its open streams stay open and silent, for ever if one lets them."""

import pytest

from router.sim.faults import Fault, FaultKind
from tests.faults.test_dies_mid_stream import events_until_cut
from tests.rig.client import CHAT, chat
from tests.rig.forms import FORMS
from tests.rig.stage import Stage


async def test_a_stream_of_a_replica_that_accepts_no_connection_is_ended_long_before_the_limit_on_silence(
    stage: Stage,
) -> None:
    dying, other = await stage.replicas(2, time_scale=1.0)
    router = await stage.router(dying, other, watched=True, scrape_interval_s=0.1, silence_timeout_s=300.0)
    await router.until(lambda: router.books(dying).report.running is not None)
    client = await stage.client(router)
    client.send(chat(stream=True, max_tokens=2_000, ignore_eos=True))
    answer = await client.head()
    home = dying if answer.replica == router.id_of(dying) else other
    await client.chunk(answer)
    home.faults.set(Fault(FaultKind.SILENT_SIGTERM))
    *_, last = await events_until_cut(client, answer)
    assert FORMS["chat"].error_of(last)["code"] == "upstream_died"
    await home.wait_for(lambda: all(arrival.left_early for arrival in home.requests if not arrival.ended), 5.0)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_without_a_first_byte_goes_to_another_replica(stage: Stage, stream: bool) -> None:
    dying, other = await stage.replicas(2)
    router = await stage.router(dying, other, watched=True, scrape_interval_s=0.1, silence_timeout_s=300.0)
    await router.until(lambda: router.books(dying).report.running is not None)
    dying.state.driver.freeze()  # in the middle of a long prefill
    client = await stage.client(router)
    client.send(chat(stream=stream))
    await dying.wait_for(lambda: dying.requests[-1].path == CHAT, 5.0)
    dying.faults.set(Fault(FaultKind.SILENT_SIGTERM))
    answer = await client.answer()
    assert (answer.status, answer.replica, answer.reason) == (200, router.id_of(other), "failover")


async def test_a_graceful_shutdown_that_keeps_sending_is_left_alone(stage: Stage) -> None:
    """It accepts nothing any more, but its streams go on: they end as they would."""
    leaving = await stage.replica(time_scale=1.0)
    router = await stage.router(leaving)
    client, other = await stage.client(router), await stage.client(router)
    client.send(chat(stream=True, max_tokens=100, ignore_eos=True))
    answer = await client.head()
    leaving.faults.set(Fault(FaultKind.REFUSE))
    assert (await other.ask(chat())).status == 503
    assert router.books(leaving).health.refusing_since_s is not None
    await client.rest(answer)
    assert answer.events()[-1] == "[DONE]"
