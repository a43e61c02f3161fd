"""Bodies over the limit are refused with 413, and nothing else is hurt by it."""

import pytest

from tests.rig.client import CHAT, chat, chunked, request
from tests.rig.stage import Stage

LIMIT_BYTES = 4096


def sized(size: int, path: str = CHAT) -> bytes:
    return request(path, b'{"messages":[],"pad":"%b"}' % (b"x" * (size - 24)))


@pytest.mark.parametrize("path", [CHAT, "/v1/audio/transcriptions", "/v1/responses"])
async def test_a_body_over_the_limit_is_refused_by_its_announced_length(stage: Stage, path: str) -> None:
    replica = await stage.replica()
    router = await stage.router(replica, max_body_bytes=LIMIT_BYTES)
    client = await stage.client(router)
    answer = await client.ask(sized(LIMIT_BYTES + 1, path))
    assert answer.status == 413
    assert answer.error["code"] == "body_too_large"
    assert "max-body-bytes" in answer.error["message"]
    assert answer.header("connection") == "close"
    await client.closed()
    assert not replica.requests


async def test_a_body_just_at_the_limit_passes(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica, max_body_bytes=LIMIT_BYTES)
    await stage.ask(router, sized(LIMIT_BYTES))
    framed = chunked(b"x" * 1024, b"y" * (LIMIT_BYTES - 1024))
    await stage.ask(router, request("/v1/unknown", framed, headers=[("transfer-encoding", "chunked")]))
    assert [len(arrival.body) for arrival in replica.requests] == [LIMIT_BYTES] * 2


async def test_a_chunked_body_is_refused_once_it_has_grown_over_the_limit(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica, max_body_bytes=LIMIT_BYTES)
    client = await stage.client(router)
    client.send(request(CHAT, chunked(b"x" * LIMIT_BYTES, last=b""), headers=[("transfer-encoding", "chunked")]))
    client.send(chunked(b"y", last=b""))
    assert (await client.answer()).status == 413, "it is refused without waiting for its end"
    await client.closed()
    assert not replica.requests


async def test_a_client_that_sends_on_and_on_still_gets_its_413(stage: Stage) -> None:
    """A connection closed with unread bytes would be reset, and the answer lost on its way."""
    router = await stage.router(max_body_bytes=LIMIT_BYTES)
    client = await stage.client(router)
    client.send(sized(8 << 20))
    assert (await client.answer()).status == 413


async def test_what_follows_a_refused_body_is_not_taken_for_a_request(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica, max_body_bytes=LIMIT_BYTES)
    client = await stage.client(router)
    hidden = chat()
    body = hidden + b" " * (LIMIT_BYTES + 1)
    client.send(request(CHAT, body) + chat())
    assert (await client.answer()).status == 413
    await client.closed()
    assert not replica.requests


async def test_other_connections_and_their_running_answers_go_on(stage: Stage) -> None:
    replica = await stage.replica(time_scale=1.0)
    router = await stage.router(replica, max_body_bytes=LIMIT_BYTES)
    other, fat = await stage.client(router), await stage.client(router)
    other.send(chat(stream=True, max_tokens=10, ignore_eos=True))
    answer = await other.head()
    await other.chunk(answer)
    assert (await fat.ask(sized(LIMIT_BYTES + 1))).status == 413
    await other.rest(answer)
    assert answer.events()[-1] == "[DONE]"
    assert (await other.ask(chat())).status == 200


async def test_requests_before_a_refused_one_on_the_same_connection_are_unharmed(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica, max_body_bytes=LIMIT_BYTES)
    client = await stage.client(router)
    assert (await client.ask(chat())).status == 200
    assert (await client.ask(sized(LIMIT_BYTES + 1))).status == 413
    assert (await stage.ask(router, chat())).status == 200


async def test_anthropics_path_has_anthropics_form(stage: Stage) -> None:
    router = await stage.router(max_body_bytes=LIMIT_BYTES)
    answer = await stage.ask(router, sized(LIMIT_BYTES + 1, "/v1/messages"))
    assert answer.status == 413
    assert answer.json()["type"] == "error"
    assert answer.json()["error"]["type"] == "request_too_large"


async def test_the_default_limit_is_64_mib(stage: Stage) -> None:
    router = await stage.router()
    client = await stage.client(router)
    announced = [("content-length", str((64 << 20) + 1))]
    assert (await client.ask(request(CHAT, b"", headers=announced))).status == 413
