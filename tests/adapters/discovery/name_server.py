"""A name server on a free port of this machine, over UDP and TCP."""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict
from typing import Self

import dns.asyncresolver
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset

_UDP_BYTES = 512
_TRIES = 20


class NameServer(asyncio.DatagramProtocol):
    """Names are absolute and in lower case, with their final dot."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], list[str]] = {}
        """Name and type -> the records' texts."""
        self.answers: defaultdict[str, list[dns.rcode.Rcode | None]] = defaultdict(list)
        """Name -> what comes instead of records, the last one for good; None is silence."""
        self.asked: list[tuple[str, str, str]] = []
        """Name, type, and udp or tcp."""
        self.port = 0
        self._udp: asyncio.DatagramTransport | None = None
        self._tcp: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        for tries_left in reversed(range(_TRIES)):
            tcp = socket.create_server(("127.0.0.1", 0))
            udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                udp.bind(tcp.getsockname())
                break
            except OSError:  # somebody has this port for UDP
                udp.close()
                tcp.close()
                if not tries_left:
                    raise
        await self.listen(tcp, udp)
        return self

    async def listen(self, tcp: socket.socket, udp: socket.socket) -> None:
        """Answer on sockets of which the one listens and the other is bound, to the same port."""
        self.port = tcp.getsockname()[1]
        self._tcp = await asyncio.start_server(self._answer_tcp, sock=tcp)
        self._udp, _ = await asyncio.get_running_loop().create_datagram_endpoint(lambda: self, sock=udp)

    async def __aexit__(self, *_: object) -> None:
        assert self._udp is not None
        assert self._tcp is not None
        self._udp.close()
        self._tcp.close()

    def resolver(self) -> dns.asyncresolver.Resolver:
        """A resolver that asks this server, as a pod's would: short names are searched for."""
        resolver = dns.asyncresolver.Resolver(configure=False)
        resolver.nameservers = ["127.0.0.1"]
        resolver.port = self.port
        resolver.search = [dns.name.from_text(text) for text in ("llm.svc.cluster.local.", "cluster.local.")]
        resolver.ndots = 5
        resolver.lifetime = 0.3
        return resolver

    def count(self, kind: str) -> int:
        return sum(asked[1] == kind for asked in self.asked)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        assert self._udp is not None
        if answer := self._answer(data, "udp"):
            self._udp.sendto(answer, addr)

    async def _answer_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = int.from_bytes(await reader.readexactly(2), "big")
        if answer := self._answer(await reader.readexactly(length), "tcp"):
            writer.write(len(answer).to_bytes(2, "big") + answer)
            await writer.drain()
        writer.close()

    def _answer(self, data: bytes, way: str) -> bytes | None:
        query = dns.message.from_wire(data)
        (question,) = query.question
        name, kind = question.name.to_text().lower(), dns.rdatatype.to_text(question.rdtype)
        self.asked.append((name, kind, way))
        response = dns.message.make_response(query)
        response.flags |= dns.flags.RA
        planned = self.answers[name]
        if planned:
            code = planned.pop(0) if len(planned) > 1 else planned[0]
            if code is None:
                return None
            response.set_rcode(code)
        elif texts := self.records.get((name, kind)):
            response.answer = [dns.rrset.from_text(name, 5, "IN", kind, *texts)]
        elif not any(known == name for known, _ in self.records):
            response.set_rcode(dns.rcode.NXDOMAIN)
        wire = response.to_wire(max_size=65_535)
        if way == "udp" and len(wire) > _UDP_BYTES:
            response.answer.clear()
            response.flags |= dns.flags.TC
            wire = response.to_wire()
        return wire
