"""A TCP proxy that loses packets, and one behind which a host vanishes: no FIN, no RST, no acknowledgement of anything.

The kernel does it: a packet filter on a socket (SO_ATTACH_FILTER, socket(7)) is asked before TCP is, and what it
refuses has never come. So the other side's TCP sends again and gives up as it would with a cable pulled out. It needs
no privileges and no program; netem is not in every kernel, and namespaces need root.
"""

from __future__ import annotations

import asyncio
import ctypes
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from tests.rig.slow_link import SlowLink

_ATTACH = 26
"""SO_ATTACH_FILTER; the socket module does not name it."""

_RANDOM = 0xFFFFF000 + 56
"""SKF_AD_OFF + SKF_AD_RANDOM of linux/filter.h: where a filter reads a random number of 32 bits."""

_LOAD, _RETURN, _JUMP_IF_ABOVE = 0x20, 0x06, 0x25

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, operand: `struct sock_filter`."""

NOTHING: tuple[Instruction, ...] = ((_RETURN, 0, 0, 0),)
EVERYTHING: tuple[Instruction, ...] = ((_RETURN, 0, 0, 0xFFFFFFFF),)


def all_but(loss_ratio: float) -> tuple[Instruction, ...]:
    """A filter that lets all packets pass but this share of them."""
    return (
        (_LOAD, 0, 0, _RANDOM),
        (_JUMP_IF_ABOVE, 0, 1, int(loss_ratio * 0xFFFFFFFF)),
        EVERYTHING[0],
        NOTHING[0],
    )


class Sock(Protocol):
    def setsockopt(self, level: int, option: int, value: bytes, /) -> None: ...


def attach(sock: Sock, program: tuple[Instruction, ...]) -> None:
    """Let a socket receive what the filter passes, from now on."""
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in program))
    sock.setsockopt(socket.SOL_SOCKET, _ATTACH, struct.pack("HL", len(program), ctypes.addressof(code)))


def connecting_to(port: int) -> int:
    """How many sockets of this machine have asked for a connection to a port of 127.0.0.1 and have no answer."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(fields[2] == f"0100007F:{port:04X}" and fields[3] == "02" for fields in lines)


class FaultyLink(SlowLink):
    """Relays to a port of 127.0.0.1 until told otherwise."""

    def __init__(self, target_port: int, loss_ratio: float = 0.0) -> None:
        """`loss_ratio`: of all packets that come from either side, once there is a connection."""
        super().__init__(target_port)
        self._passed = all_but(loss_ratio) if loss_ratio else EVERYTHING
        self._is_gone = False
        self._held: list[tuple[bytes, asyncio.StreamWriter]] = []
        """What was on its way, acknowledged, when the hosts vanished."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def vanish(self) -> None:
        """Both hosts vanish from each other, for all connections and new ones."""
        self._is_gone = True
        for sock in self._sockets():
            attach(sock, NOTHING)

    def come_back(self) -> None:
        """Let new connections, and what is sent again on old ones, come through."""
        self._is_gone = False
        for data, writer in self._held:
            super()._deliver(data, writer)
        self._held.clear()
        for sock in self._sockets():
            attach(sock, EVERYTHING)

    def _sockets(self) -> Iterator[Sock]:
        assert self._server is not None
        yield from self._server.sockets
        for writer in self._writers:
            yield writer.get_extra_info("socket")

    def _deliver(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        if self._is_gone:
            self._held.append((data, writer))
        else:
            super()._deliver(data, writer)

    def _opened(self, writer: asyncio.StreamWriter) -> None:
        if self._passed is not EVERYTHING:
            attach(writer.get_extra_info("socket"), self._passed)
