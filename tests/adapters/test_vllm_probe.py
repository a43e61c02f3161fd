"""Probing a vLLM over HTTP: every way to fail is one of three errors, so that nothing else has to be expected."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from router.adapters.vllm_metrics import MAX_METRICS_BYTES, VllmProbe
from router.sim.faults import Fault, FaultKind
from tests.rig.stage import Stage
from tests.rig.upstream import Peer, answering


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=2.0, trust_env=False, verify=False) as client:
        yield client


async def test_report_and_models_of_an_engine(stage: Stage, client: httpx.AsyncClient) -> None:
    replica = await stage.replica(models=("one", "two"))
    probe = VllmProbe(client, replica.url)
    [report] = await probe.reports([None])
    assert report is not None
    assert (report.running, report.kv_tokens, report.block_tokens) == (0, 300_000, 16)
    models = await probe.models()
    assert [model["id"] for model in models] == ["one", "two"]
    assert models[0]["max_model_len"] == 131_072


async def test_nothing_listening_is_connection_refused(stage: Stage, client: httpx.AsyncClient) -> None:
    replica = await stage.replica()
    replica.faults.set(Fault(FaultKind.REFUSE))
    with pytest.raises(ConnectionRefusedError):
        await VllmProbe(client, replica.url).reports([None])


async def test_a_slow_answer_is_a_timeout(stage: Stage) -> None:
    replica = await stage.replica()
    replica.faults.set(Fault(FaultKind.SLOW_METRICS, delay_s=30.0))
    async with httpx.AsyncClient(timeout=0.1, trust_env=False, verify=False) as hasty:
        with pytest.raises(TimeoutError):
            await VllmProbe(hasty, replica.url).reports([None])


@pytest.mark.parametrize("status", [401, 404, 500, 503])
async def test_an_error_answer_is_an_os_error_that_is_no_refusal(
    stage: Stage, client: httpx.AsyncClient, status: int
) -> None:
    replica = await stage.replica()
    replica.faults.set(Fault(FaultKind.STATUS, status=status, path="*"))
    probe = VllmProbe(client, replica.url)
    for reading in (probe.reports([0]), probe.models()):
        with pytest.raises(OSError) as failed:
            await reading
        assert not isinstance(failed.value, ConnectionRefusedError | TimeoutError)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"{}", b"null", b'{"data":null}', b'{"data":{}}', b"\xff\xfe", b"<html>busy</html>"],
)
async def test_a_model_list_in_another_form_is_an_os_error(
    stage: Stage, client: httpx.AsyncClient, body: bytes
) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    upstream = await stage.upstream(answering(head + body))
    with pytest.raises(OSError, match="model list"):
        await VllmProbe(client, upstream.url).models()


async def test_entries_that_are_no_models_are_left_out(stage: Stage, client: httpx.AsyncClient) -> None:
    body = b'{"data":[1,null,{"id":5},{"id":"good","extra":true},{"name":"x"}]}'
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
    upstream = await stage.upstream(answering(head + body))
    assert await VllmProbe(client, upstream.url).models() == [{"id": "good", "extra": True}]


async def test_an_answer_that_breaks_off_is_an_os_error(stage: Stage, client: httpx.AsyncClient) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nvllm:num")
        await peer.writer.drain()
        peer.close()

    upstream = await stage.upstream(script)
    with pytest.raises(OSError):
        await VllmProbe(client, upstream.url).reports([None])


async def test_a_page_without_end_is_given_up(stage: Stage, client: httpx.AsyncClient) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while not peer.writer.is_closing():
            peer.send(b"# " + b"x" * 65_536 + b"\n")
            await peer.writer.drain()

    upstream = await stage.upstream(script)
    with pytest.raises(OSError, match=str(MAX_METRICS_BYTES)):
        await VllmProbe(client, upstream.url).reports([None])


async def test_an_answer_that_is_no_http_is_an_os_error(stage: Stage, client: httpx.AsyncClient) -> None:
    upstream = await stage.upstream(answering(b"SSH-2.0-OpenSSH\r\n\r\n"))
    with pytest.raises(OSError):
        await VllmProbe(client, upstream.url).reports([None])


@pytest.mark.parametrize("status", [200, 401, 404, 405, 429])
async def test_any_answer_but_a_server_error_is_a_sign_of_life(
    stage: Stage, client: httpx.AsyncClient, status: int
) -> None:
    upstream = await stage.upstream(answering(b"HTTP/1.1 %d x\r\ncontent-length: 0\r\n\r\n" % status))
    await VllmProbe(client, upstream.url).health()


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_a_server_error_is_none(stage: Stage, client: httpx.AsyncClient, status: int) -> None:
    upstream = await stage.upstream(answering(b"HTTP/1.1 %d x\r\ncontent-length: 0\r\n\r\n" % status))
    with pytest.raises(OSError, match=str(status)):
        await VllmProbe(client, upstream.url).health()


async def test_a_health_check_that_nobody_answers_is_a_timeout(stage: Stage) -> None:
    replica = await stage.replica()
    replica.faults.set(Fault(FaultKind.HANG, path="/health"))
    async with httpx.AsyncClient(timeout=0.1, trust_env=False, verify=False) as hasty:
        with pytest.raises(TimeoutError):
            await VllmProbe(hasty, replica.url).health()


async def test_whether_an_engine_is_paused_is_told_in_development_mode_only(
    stage: Stage, client: httpx.AsyncClient
) -> None:
    plain, telling = await stage.replica(), await stage.replica(dev_mode=True)
    assert await VllmProbe(client, plain.url).paused() is None
    probe = VllmProbe(client, telling.url)
    assert await probe.paused() is False
    telling.state.pause()
    assert await probe.paused() is True


@pytest.mark.parametrize("body", [b"{}", b"[]", b"null", b'{"is_paused":"yes"}'])
async def test_an_odd_word_about_pausing_is_no_pause(stage: Stage, client: httpx.AsyncClient, body: bytes) -> None:
    upstream = await stage.upstream(answering(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body))
    assert await VllmProbe(client, upstream.url).paused() is False


async def test_a_garbled_word_about_pausing_is_an_os_error(stage: Stage, client: httpx.AsyncClient) -> None:
    upstream = await stage.upstream(answering(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{"))
    with pytest.raises(OSError):
        await VllmProbe(client, upstream.url).paused()


async def test_one_token_is_generated_on_the_rank_that_is_meant(stage: Stage, client: httpx.AsyncClient) -> None:
    replica = await stage.replica(data_parallel=2)
    assert await VllmProbe(client, replica.url).generates("sim-model", 1) is True
    idle, asked = replica.state.ranks.all
    assert (idle.driver.engine.stats.generation_tokens, asked.driver.engine.stats.generation_tokens) == (0, 1)


async def test_a_refusal_proves_nothing(stage: Stage, client: httpx.AsyncClient) -> None:
    replica = await stage.replica()
    assert await VllmProbe(client, replica.url).generates("no-such-model", None) is False


async def test_an_engine_that_lets_a_token_wait_is_a_timeout(stage: Stage) -> None:
    replica = await stage.replica()
    replica.state.freeze()
    async with httpx.AsyncClient(timeout=0.1, trust_env=False, verify=False) as hasty:
        with pytest.raises(TimeoutError):
            await VllmProbe(hasty, replica.url).generates("sim-model", None)
    await replica.wait_for(lambda: not replica.engine.waiting, 5.0)
