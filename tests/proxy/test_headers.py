"""All end-to-end headers pass both ways, those of one connection do not, and the router's own can't be forged."""

import re

import pytest

from tests.rig.client import chat, request
from tests.rig.stage import Stage
from tests.rig.upstream import answering


def ok(*lines: str) -> bytes:
    head = ["HTTP/1.1 200 OK", "content-type: application/json", "content-length: 2", *lines, "", ""]
    return "\r\n".join(head).encode("latin-1") + b"{}"


async def test_end_to_end_request_headers_pass_in_order_duplicates_kept(stage: Stage) -> None:
    upstream = await stage.upstream(answering(ok()))
    router = await stage.router(upstream)
    sent = [
        ("X-Vllm-Priority", "-3"),
        ("x-data-parallel-rank", "1"),
        ("Authorization", "Bearer of the client"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("Accept-Encoding", "gzip, br"),
        ("Cookie", "a=1"),
        ("X-Twice", "one"),
        ("Cookie", "b=2"),
        ("x-twice", "two"),
        ("x-empty", ""),
        ("x-latin", "caf\u00e9 \u00ff"),
        ("OpenAI-Organization", "org"),
    ]
    await stage.ask(router, chat(headers=sent))
    got = [(name.lower(), value) for name, value in upstream.requests[0].headers]
    assert [pair for pair in got if pair in [(name.lower(), value) for name, value in sent]] == [
        (name.lower(), value) for name, value in sent
    ]
    assert upstream.requests[0].header("content-type") == "application/json"


async def test_hop_by_hop_request_headers_and_those_named_by_connection_do_not_pass(stage: Stage) -> None:
    upstream = await stage.upstream(answering(ok()))
    router = await stage.router(upstream)
    sent = [
        ("Connection", "keep-alive, X-Secret-Hop"),
        ("connection", "x-other-hop"),
        ("X-Secret-Hop", "1"),
        ("X-Other-Hop", "2"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Authorization", "Basic x"),
        ("Proxy-Connection", "keep-alive"),
        ("TE", "trailers"),
        ("Trailer", "x-end"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAMAAABkAAQ"),
        ("X-Stays", "3"),
    ]
    answer = await stage.ask(router, chat(headers=sent))
    assert answer.status == 200
    names = {name.lower() for name, _ in upstream.requests[0].headers}
    gone = {"x-secret-hop", "x-other-hop", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer"}
    assert not names & (gone | {"connection", "upgrade"})
    assert "x-stays" in names


async def test_the_host_is_the_replicas(stage: Stage) -> None:
    upstream = await stage.upstream(answering(ok()))
    router = await stage.router(upstream)
    await stage.ask(router, chat())
    assert upstream.requests[0].all("host") == [f"127.0.0.1:{upstream.port}"]


async def test_end_to_end_answer_headers_pass_in_order_duplicates_kept(stage: Stage) -> None:
    lines = [
        "Server: uvicorn",
        "Set-Cookie: a=1",
        "X-Kind: one",
        "Set-Cookie: b=2",
        "vary: Origin",
        "x-latin: caf\u00e9",
    ]
    upstream = await stage.upstream(answering(ok(*lines)))
    router = await stage.router(upstream)
    answer = await stage.ask(router, chat())
    wanted = [(name.lower(), value) for name, value in (line.split(": ") for line in lines)]
    assert [pair for pair in answer.headers if pair in wanted] == wanted
    assert answer.header("content-length") == "2"


async def test_hop_by_hop_answer_headers_and_those_named_by_connection_do_not_pass(stage: Stage) -> None:
    lines = [
        "Connection: keep-alive, x-hop",
        "X-Hop: 1",
        "Keep-Alive: timeout=5",
        "Proxy-Authenticate: Basic",
        "x-stays: 1",
    ]
    upstream = await stage.upstream(answering(ok(*lines)))
    router = await stage.router(upstream)
    answer = await stage.ask(router, chat())
    names = {name for name, _ in answer.headers}
    assert not names & {"connection", "x-hop", "keep-alive", "proxy-authenticate"}
    assert "x-stays" in names


async def test_connection_close_of_the_engine_is_not_the_clients_business(stage: Stage) -> None:
    upstream = await stage.upstream(answering(ok("connection: close")))
    router = await stage.router(upstream)
    client = await stage.client(router)
    for _ in range(2):
        assert (await client.ask(chat())).header("connection") is None
    assert len(upstream.peers) == 2


# The request's id


async def test_the_clients_request_id_goes_down_and_up_once_and_is_logged(stage: Stage) -> None:
    upstream = await stage.upstream(answering(ok("x-request-id: of-the-engine")))
    router = await stage.router(upstream)
    answer = await stage.ask(router, chat(headers=[("X-Request-Id", "mine-1")]))
    assert answer.header("x-request-id") == "mine-1"
    assert upstream.requests[0].header("x-request-id") == "mine-1"
    assert router.records.finished[-1].request_id == "mine-1"


async def test_without_one_a_request_id_is_made_once_and_is_the_same_everywhere(stage: Stage) -> None:
    upstream = await stage.upstream(answering(ok()))
    router = await stage.router(upstream)
    client = await stage.client(router)
    made = []
    for headers in ([], [("x-request-id", "")], []):
        made.append((await client.ask(chat(headers=headers))).header("x-request-id"))
        assert upstream.requests[-1].header("x-request-id") == made[-1] == router.records.finished[-1].request_id
    assert len({*made}) == 3
    assert all(re.fullmatch(r"[0-9a-f]{32}", ident or "") for ident in made)


async def test_of_two_request_ids_the_first_is_taken(stage: Stage) -> None:
    upstream = await stage.upstream(answering(ok()))
    router = await stage.router(upstream)
    answer = await stage.ask(router, chat(headers=[("x-request-id", "a"), ("x-request-id", "b")]))
    assert answer.header("x-request-id") == upstream.requests[0].header("x-request-id") == "a"


@pytest.mark.parametrize(
    "given",
    ["x" * 129, "x" * 60_000, "caf\u00e9", "a b", "a\tb", "\x80"],
    ids=["129", "60000", "latin", "space", "tab", "high"],
)
async def test_a_request_id_that_is_no_short_word_is_replaced(stage: Stage, given: str) -> None:
    upstream = await stage.upstream(answering(ok()))
    router = await stage.router(upstream)
    answer = await stage.ask(router, chat(headers=[("x-request-id", given)]))
    assert re.fullmatch(r"[0-9a-f]{32}", answer.header("x-request-id") or "")
    assert upstream.requests[0].header("x-request-id") == answer.header("x-request-id")
    assert router.records.finished[-1].request_id == answer.header("x-request-id")


async def test_a_request_id_of_128_characters_is_kept(stage: Stage) -> None:
    router = await stage.router()
    answer = await stage.ask(router, chat(headers=[("x-request-id", "~" * 128)]))
    assert answer.header("x-request-id") == "~" * 128


async def test_nothing_is_keyed_by_the_request_id(stage: Stage) -> None:
    """Two requests under one id, at the same time: each gets its own answer."""
    first, second = await stage.replicas(2, time_scale=1.0)
    router = await stage.router(first, second)
    clients = [await stage.client(router) for _ in range(2)]
    for number, client in enumerate(clients):
        client.send(chat(f"question {number}", headers=[("x-request-id", "same")]))
    answers = [await client.answer() for client in clients]
    assert [answer.header("x-request-id") for answer in answers] == ["same", "same"]
    assert len({answer.replica for answer in answers}) == 2


async def test_an_answer_of_the_routers_own_has_the_request_id_too(stage: Stage) -> None:
    router = await stage.router()
    answer = await stage.ask(router, chat(headers=[("x-request-id", "lost-1")]))
    assert answer.status == 503
    assert answer.header("x-request-id") == "lost-1"


# The router's own headers


async def test_an_answer_says_who_why_and_how_much_was_warm(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    answer = await stage.ask(router, chat())
    assert answer.replica == router.id_of(replica)
    assert (answer.reason, answer.matched_tokens) == ("keyless", 0)


async def test_nobody_else_writes_the_routers_headers(stage: Stage) -> None:
    forged = ["x-warmroute-replica: r-forged", "X-Warmroute-Decision: forged", "x-warmroute-anything: forged"]
    upstream = await stage.upstream(answering(ok(*forged)))
    router = await stage.router(upstream)
    headers = [("x-warmroute-replica", "r-wished"), ("x-warmroute-decision", "wished")]
    answer = await stage.ask(router, chat(headers=headers))
    assert answer.replica == router.id_of(upstream)
    assert answer.reason == "keyless"
    assert answer.header("x-warmroute-anything") is None


async def test_replica_ids_are_stable_and_tell_no_address(stage: Stage) -> None:
    replicas = await stage.replicas(3)
    router = await stage.router(*replicas)
    client = await stage.client(router)
    seen = {(await client.ask(chat())).replica for _ in range(9)}
    assert seen == {router.id_of(replica) for replica in replicas}
    for name in seen:
        assert re.fullmatch(r"r-[0-9a-f]{8}", name or "")
    again = await stage.router(*replicas)
    assert not seen & {again.id_of(replica) for replica in replicas}, "ids of two starts can be told apart"


async def test_no_answer_tells_a_replicas_address(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica, watched=True)
    await router.until(lambda: bool(router.books(replica).models))
    client = await stage.client(router)
    for asked in (chat(), request("/v1/models"), request("/health"), request("/nowhere"), request("/v1/nowhere")):
        answer = await client.ask(asked)
        assert str(replica.port).encode() not in answer.raw_head + answer.body


# Keys


@pytest.mark.parametrize(
    "given", [[], [("authorization", "Bearer mine")], [("Authorization", "a"), ("authorization", "b")]]
)
async def test_the_key_for_engines_replaces_the_clients_and_is_never_sent_twice(
    stage: Stage, given: list[tuple[str, str]]
) -> None:
    upstream = await stage.upstream(answering(ok()))
    router = await stage.router(upstream, engine_api_key="fleet-key")
    answer = await stage.ask(router, chat(headers=given))
    assert upstream.requests[0].all("authorization") == ["Bearer fleet-key"]
    assert b"fleet-key" not in answer.raw_head + answer.body


async def test_connection_can_not_take_the_engines_key_off(stage: Stage) -> None:
    upstream = await stage.upstream(answering(ok()))
    router = await stage.router(upstream, engine_api_key="fleet-key")
    await stage.ask(router, chat(headers=[("connection", "authorization, host, content-length, x-request-id")]))
    received = upstream.requests[0]
    assert received.header("authorization") == "Bearer fleet-key"
    assert received.header("x-request-id")
    assert received.body


async def test_connection_can_not_take_off_what_protects(stage: Stage) -> None:
    """A proxy in front may have put these in; the client must not have them removed behind it."""
    upstream = await stage.upstream(answering(ok()))
    router = await stage.router(upstream)
    kept = [("authorization", "Bearer x"), ("cookie", "a=1"), ("content-type", "application/json"), ("api-key", "k")]
    named = ("connection", ", ".join(["close", *(name for name, _ in kept), "x-hop"]))
    await stage.ask(router, chat(headers=[named, *kept, ("x-hop", "1")]))
    received = upstream.requests[0]
    assert [pair for pair in received.headers if pair in kept] == kept
    assert received.all("x-hop") == []


async def test_the_rank_is_the_routers_where_the_replica_has_one(stage: Stage) -> None:
    upstream = await stage.upstream(answering(ok()))
    ranked = await stage.router(upstream)
    pool = next(iter(ranked.house.plane.pools.values()))
    pool.own_lines = b"x-data-parallel-rank: 3\r\n"
    await stage.ask(ranked, chat(headers=[("X-Data-Parallel-Rank", "1")]))
    assert upstream.requests[0].all("x-data-parallel-rank") == ["3"]


async def test_without_a_key_for_engines_the_clients_passes(stage: Stage) -> None:
    replica = await stage.replica(api_key="of-the-engine")
    router = await stage.router(replica)
    allowed = await stage.ask(router, chat(headers=[("authorization", "Bearer of-the-engine")]))
    refused = await stage.ask(router, chat(headers=[("authorization", "Bearer wrong")]))
    assert (allowed.status, refused.status) == (200, 401)
    assert refused.body == b'{"error":"Unauthorized"}'
    assert router.books(replica).health.up
