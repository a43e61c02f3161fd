"""What the kernel is asked to do, and says, about hosts that may have vanished; faults have files in tests/faults."""

from __future__ import annotations

import asyncio
import socket

import pytest

from router.proxy.vanished import AT_A_TIME, Silent, Turns, keep_alive, unacknowledged
from tests.rig.client import chat
from tests.rig.faulty_link import FaultyLink
from tests.rig.stage import Stage


@pytest.mark.parametrize(
    ("limit_s", "quiet_s", "pause_s", "probes"),
    [(1.0, 1, 1, 1), (2.0, 1, 1, 1), (10.0, 5, 1, 5), (30.0, 15, 3, 5), (3600.0, 1800, 360, 5)],
)
def test_probes_fill_the_second_half_of_the_time(limit_s: float, quiet_s: int, pause_s: int, probes: int) -> None:
    with socket.socket() as sock:
        keep_alive(sock, limit_s)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert [sock.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [quiet_s, pause_s, probes]


async def test_sent_and_not_acknowledged(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router(replica)
    async with FaultyLink(replica.port) as link:
        client = await stage.client(link)
        transport = client.writer.transport
        assert (await client.ask(chat())).status == 200
        assert unacknowledged(transport) == Silent(0.0, 0.0), "all is acknowledged"
        link.vanish()
        client.send(chat())
        await router.until(lambda: unacknowledged(transport).resent_s >= 0.5)
        assert unacknowledged(transport).unheard_s >= 0.5
        link.come_back()
        assert (await client.answer()).status == 200
        assert unacknowledged(transport) == Silent(0.0, 0.0)


async def test_who_does_not_read_is_there(stage: Stage) -> None:
    """A window of zero: bytes wait here, and none of those that were sent is unacknowledged."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        _, writer = await asyncio.open_connection(*listening.getsockname())
        peer, _ = listening.accept()
        with peer:
            writer.write(b"x" * (16 << 20))
            router = await stage.router()
            await router.until(lambda: unacknowledged(writer.transport) == Silent(0.0, 0.0))
            assert writer.transport.get_write_buffer_size() > 0
        writer.transport.abort()


async def test_a_connection_of_another_kind_or_closed_says_nothing() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        _, writer = await asyncio.open_connection(sock=ours)
        assert unacknowledged(writer.transport) == Silent(0.0, 0.0)
        writer.transport.abort()
        assert unacknowledged(writer.transport) == Silent(0.0, 0.0)


class Seen:
    def __init__(self) -> None:
        self.at: list[float] = []

    def look_at_hosts(self, now: float) -> None:
        self.at.append(now)


def test_each_exchange_has_its_turn_however_many_there_are() -> None:
    many = [Seen() for _ in range(2 * AT_A_TIME + 10)]
    turns = Turns(lambda: many)
    for now in (1.0, 2.0, 3.0, 4.0):
        turns.sweep(now)
    assert sorted(seen.at[0] for seen in many) == [1.0] * AT_A_TIME + [2.0] * AT_A_TIME + [3.0] * 10
    assert sum(len(seen.at) == 2 for seen in many) == AT_A_TIME, "then from the beginning"


def test_without_exchanges_there_is_nothing_to_do() -> None:
    Turns(list).sweep(1.0)
