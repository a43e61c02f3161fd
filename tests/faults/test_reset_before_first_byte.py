"""The connection is lost before the first byte of the answer: the request goes to the next replica."""

import pytest

from router.sim.faults import Fault, FaultKind
from tests.rig.client import chat, request
from tests.rig.forms import FORMS, Form
from tests.rig.stage import Stage
from tests.rig.upstream import Peer, answering

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("abort", [True, False], ids=["reset", "closed"])
async def test_the_request_is_made_again_elsewhere_as_it_was(stage: Stage, form: Form, abort: bool) -> None:
    bad, good = await stage.replicas(2)
    bad.faults.set(Fault(FaultKind.RESET_BEFORE_FIRST_BYTE, abort=abort))
    router = await stage.router(bad, good)
    sent = form.request(stream=True, headers=[("x-kept", "yes")])
    answer = await stage.ask(router, sent)
    assert (answer.status, answer.replica, answer.reason) == (200, router.id_of(good), "failover")
    assert form.good_end in answer.body
    assert bad.requests[0].body == good.requests[0].body == sent.partition(b"\r\n\r\n")[2]
    assert good.requests[0].header(b"x-kept") == b"yes"
    assert bad.requests[0].header(b"x-request-id") == good.requests[0].header(b"x-request-id")
    assert router.records.failed == [(router.id_of(bad), "reset")]


async def test_it_is_ejected_at_once_and_not_asked_again_while_it_is(stage: Stage) -> None:
    bad, good = await stage.replicas(2)
    bad.faults.set(Fault(FaultKind.RESET_BEFORE_FIRST_BYTE))
    router = await stage.router(bad, good)
    client = await stage.client(router)
    for _ in range(5):
        assert (await client.ask(chat())).status == 200
    assert len(bad.requests) == 1


@pytest.mark.parametrize("cut", ["within the head", "behind the head", "behind an interim head"])
async def test_a_head_without_a_body_is_no_first_byte(stage: Stage, cut: str) -> None:
    """vLLM sends its head at once, before it has begun to work: a replica lost then has done nothing."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    sent = {"within the head": head[:30], "behind the head": head, "behind an interim head": b"HTTP/1.1 100 C\r\n\r\n"}

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(sent[cut])
        await peer.writer.drain()
        peer.close()

    bad = await stage.upstream(script)
    good = await stage.upstream(answering(OK))
    router = await stage.router(bad, good)
    answer = await stage.ask(router, chat(stream=True))
    assert (answer.body, answer.replica) == (b"ok", router.id_of(good))


async def test_a_large_body_cut_off_half_way_is_sent_again_whole(stage: Stage) -> None:
    body = bytes(range(256)) * 20_000

    async def script(peer: Peer) -> None:
        await peer.reader.readexactly(300_000)
        peer.reset()

    bad = await stage.upstream(script)
    good = await stage.upstream(answering(OK))
    router = await stage.router(bad, good)
    client = await stage.client(router)
    for _ in range(2):
        answer = await client.ask(request("/v1/audio/transcriptions", body))
        assert (answer.body, answer.replica) == (b"ok", router.id_of(good))
    assert [received.body for received in good.requests] == [body, body]


async def test_with_no_alternate_left_the_client_is_told_to_try_again(stage: Stage) -> None:
    bad = await stage.replica()
    bad.faults.set(Fault(FaultKind.RESET_BEFORE_FIRST_BYTE))
    router = await stage.router(bad)
    answer = await stage.ask(router, chat())
    assert answer.status == 503
    assert answer.error["code"] == "upstream_failed"
    assert int(answer.header("retry-after") or 0) >= 1
    assert answer.replica is None


async def test_a_replica_that_resets_requests_but_answers_probes_is_readmitted_by_a_trial_only(stage: Stage) -> None:
    bad, good = await stage.replicas(2)
    bad.faults.set(Fault(FaultKind.RESET_BEFORE_FIRST_BYTE))
    router = await stage.router(bad, good, watched=True, scrape_interval_s=0.1)
    client = await stage.client(router)
    assert (await client.ask(chat())).status == 200
    probes = [arrival for arrival in bad.requests if arrival.path == "/metrics"]
    await bad.wait_for(lambda: sum(arrival.path == "/metrics" for arrival in bad.requests) >= len(probes) + 2, 5.0)
    assert not router.books(bad).health.up
    bad.faults.clear()
    await router.until(lambda: router.books(bad).health.available(router.house.plane.clock()))
    for _ in range(3):
        assert (await client.ask(chat())).status == 200
    assert router.books(bad).health.up
