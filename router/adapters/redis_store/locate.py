"""Finds the server that takes writes: the one of the URL, the sentinels' master, or a slot's master in a cluster."""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable
from typing import Any

from redis import ConnectionError, RedisError
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot

from router.adapters.redis_store.address import Address
from router.adapters.redis_store.closing import close

Node = tuple[str, int]

_LOCATE_TIMEOUTS = 3.0
"""Connecting, logging in and asking take a time-out each where a node hangs; all are asked side by side."""


async def locate(address: Address, key: str, timeout_s: float) -> Redis:
    """Return a client, not connected yet, of the server that takes writes for `key`.

    It speaks RESP2, answers bytes, and repeats nothing by itself: after a lost connection, MOVED or READONLY the
    caller closes it and comes back here. `timeout_s` (above 0) is that of the client, for connecting and for each
    answer. A standalone server isn't asked anything; otherwise this takes up to four time-outs.

    Raises redis.RedisError when no node can say where that server is (the first node's reason), and TimeoutError, which
    is an OSError, when that takes too long.
    """
    if address.kind == "standalone":
        return client_of(address, address.nodes[0] if address.nodes else None, timeout_s)
    if address.kind == "sentinel":
        own = {"db": 0, "username": address.sentinel_username, "password": address.sentinel_password}
        clients = {node: client_of(address, node, timeout_s, **own) for node in address.nodes}
        asking = [_master(client, address.service) for client in clients.values()]
    else:
        clients = {node: client_of(address, node, timeout_s) for node in address.nodes}
        slot = key_slot(key.encode())
        asking = [_slot_master(client, slot, node[0]) for node, client in clients.items()]
    try:
        async with asyncio.timeout(_LOCATE_TIMEOUTS * timeout_s):
            node = await _first_answer(asking)
    finally:
        await close(clients.values())
    return client_of(address, node, timeout_s)


def client_of(address: Address, node: Node | None, timeout_s: float, **changes: Any) -> Redis:
    """Make a client of one server with the address's credentials and TLS; `changes` replace options of redis-py."""
    options: dict[str, Any] = {
        "db": address.db,
        "username": address.username,
        "password": address.password,
        "protocol": 2,
        "decode_responses": False,
        # redis-py would wait and try again by itself, behind the back of the deadline.
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "health_check_interval": 0,
        "client_name": "warmroute",
        # Without it each connection begins with two more commands, which tell the server redis-py's version.
        "driver_info": None,
    }
    if node is None:
        return Redis(unix_socket_path=address.path, **(options | changes))
    if address.tls:
        options |= {
            "ssl": True,
            "ssl_ca_certs": address.ca_file,
            "ssl_cert_reqs": "required" if address.verify else "none",
            "ssl_check_hostname": address.verify,
        }
    return Redis(host=node[0], port=node[1], **(options | changes))


async def _first_answer(asking: Iterable[Coroutine[Any, Any, Node]]) -> Node:
    """Ask all at once, so that one that hangs holds nobody up; the first answer counts."""
    asked = [asyncio.ensure_future(ask) for ask in asking]
    try:
        for answer in asyncio.as_completed(asked):
            with contextlib.suppress(RedisError, OSError):
                return await answer
    finally:
        for one in asked:
            one.cancel()
        answers = await asyncio.gather(*asked, return_exceptions=True)
    reason = answers[0]
    raise reason if isinstance(reason, RedisError | OSError) else ConnectionError("no node answers")


async def _master(sentinel: Redis, service: str) -> Node:
    masters = await sentinel.sentinel_masters()
    # By name in RESP2, a list in RESP3 and perhaps in a later redis-py.
    states = masters.values() if isinstance(masters, dict) else masters
    state = next((state for state in states if state["name"] == service), None)
    if state is None:
        raise ConnectionError(f"the sentinels know no master named {service!r}")
    if not state["is_master"] or state["is_sdown"] or state["is_odown"]:
        raise ConnectionError(f"the sentinels hold the master of {service!r} for down")
    return str(state["ip"]), int(state["port"])


async def _slot_master(client: Redis, slot: int, host: str) -> Node:
    # As two words: "CLUSTER SLOTS" as one has a form of answer of its own in some versions of redis-py.
    ranges: list[list[Any]] = await client.execute_command("CLUSTER", "SLOTS")  # type: ignore[no-untyped-call]
    for first, last, master, *_ in ranges:
        if first <= slot <= last:
            # A node that was not told its own name gives none, or "?".
            named = (master[0] or b"").decode()
            return (named if named not in ("", "?") else host), int(master[1])
    raise ConnectionError(f"no node of the cluster has the slot {slot}")
