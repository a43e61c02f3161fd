"""A replica that accepts and says nothing: there is a limit on silence, and whoever met it is told what happened."""

import pytest

from router.sim.faults import Fault, FaultKind
from tests.faults.test_dies_mid_stream import events_until_cut
from tests.rig.client import chat, chunked
from tests.rig.forms import FORMS, Form
from tests.rig.stage import Stage
from tests.rig.upstream import Peer


@pytest.mark.parametrize("name", ["chat", "messages"])
async def test_a_request_without_any_answer_ends_with_504(stage: Stage, name: str) -> None:
    form: Form = FORMS[name]
    wedged = await stage.replica()
    wedged.faults.set(Fault(FaultKind.HANG))
    router = await stage.router(wedged, silence_timeout_s=0.6)
    answer = await stage.ask(router, form.request(stream=True))
    assert answer.status == 504
    assert "silence-timeout-s" in answer.json()["error"]["message"]
    await wedged.wait_for(lambda: wedged.requests[0].left_early, 5.0)


async def test_a_silent_prefill_behind_a_head_ends_with_504_too(stage: Stage) -> None:
    """vLLM's 200 comes before the prefill: it has not been passed on, so that the truth can still be told."""
    wedged = await stage.replica()
    router = await stage.router(wedged, silence_timeout_s=0.6)
    wedged.state.driver.freeze()
    answer = await stage.ask(router, chat(stream=True))
    assert answer.status == 504
    assert answer.error["code"] == "upstream_silent"
    assert wedged.requests[0].status == 200


async def test_a_wedged_replica_is_noticed_and_others_serve(stage: Stage) -> None:
    wedged, good = await stage.replicas(2)
    wedged.faults.set(Fault(FaultKind.HANG))
    router = await stage.router(wedged, good, silence_timeout_s=0.6)
    assert (await stage.ask(router, chat())).status == 504
    assert not router.books(wedged).health.up
    client = await stage.client(router)
    for _ in range(4):
        assert (await client.ask(chat())).replica == router.id_of(good)


async def test_what_a_wedged_replica_has_not_worked_off_sends_others_elsewhere(stage: Stage) -> None:
    """Long before any limit: the lack of first bytes leaves its ledger full while that of the others empties."""
    wedged, good = await stage.replicas(2)
    wedged.faults.set(Fault(FaultKind.HANG))
    router = await stage.router(wedged, good)
    stuck = await stage.client(router)
    stuck.send(chat("a long prompt, " * 500, stream=True))
    await wedged.wait_for(lambda: len(wedged.requests) == 1, 5.0)
    client = await stage.client(router)
    for number in range(6):
        assert (await client.ask(chat(f"another one, {number} " * 50, stream=True))).replica == router.id_of(good)


async def test_silence_in_the_middle_of_a_stream_ends_it_with_an_error_event(stage: Stage) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        peer.send(chunked(b"data: 1\n\n", last=b""))
        await peer.gone()

    upstream = await stage.upstream(script)
    router = await stage.router(upstream, silence_timeout_s=0.6)
    client = await stage.client(router)
    client.send(chat(stream=True))
    *_, last = await events_until_cut(client, await client.head())
    assert FORMS["chat"].error_of(last)["code"] == "upstream_died"
    await upstream.peers[0].left.wait()


async def test_an_engines_comments_are_no_silence(stage: Stage) -> None:
    """--sse-keep-alive-interval: the engine says that it is alive for longer than the limit on silence."""
    replica = await stage.replica(sse_keep_alive_s=0.2)
    router = await stage.router(replica, silence_timeout_s=0.8)
    replica.state.driver.freeze()
    client = await stage.client(router)
    client.send(chat(stream=True))
    answer = await client.head()
    for _ in range(8):
        assert await client.chunk(answer) == b": keep-alive\n\n"
    replica.state.driver.thaw()
    await client.rest(answer)
    assert answer.body.endswith(b"data: [DONE]\n\n")
    assert router.records.finished[-1].outcome == "completed"


async def test_comments_are_no_first_token(stage: Stage) -> None:
    """The ledger's tokens stay until the prefill has ended, and the time to the first token is that of a token."""
    replica = await stage.replica(sse_keep_alive_s=0.05)
    router = await stage.router(replica)
    replica.state.driver.freeze()
    client = await stage.client(router)
    client.send(chat("a long prompt, " * 300, stream=True))
    answer = await client.head()
    for _ in range(3):
        await client.chunk(answer)
    assert router.books(replica).ledger.uncached_tokens > 0
    replica.state.driver.thaw()
    await client.rest(answer)
    await router.idle()
    ttft_s = router.records.finished[-1].ttft_s
    assert ttft_s is not None
    assert ttft_s > 0.1


async def test_the_announcement_of_a_response_is_no_first_token(stage: Stage) -> None:
    """vLLM sends response.created before it prefills: the learnt speed must not come from that."""
    replica = await stage.replica()
    router = await stage.router(replica)
    rate = router.books(replica).prefill
    before = rate.tokens_per_s
    replica.state.driver.freeze()
    client = await stage.client(router)
    client.send(FORMS["responses"].request("a long prompt, " * 300, stream=True))
    answer = await client.head()
    assert b"response.created" in await client.chunk(answer)
    assert router.books(replica).ledger.uncached_tokens > 0
    assert rate.tokens_per_s == before
    replica.state.driver.thaw()
    await client.rest(answer)
    assert b"response.completed" in answer.body


async def test_a_slow_answer_within_the_limit_is_waited_for(stage: Stage) -> None:
    slow = await stage.replica()
    slow.faults.set(Fault(FaultKind.SLOW_HEADERS, delay_s=0.7))
    router = await stage.router(slow, silence_timeout_s=5.0)
    assert (await stage.ask(router, chat())).status == 200
