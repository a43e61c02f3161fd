"""Where a request came from, told to the engine: believed of trusted proxies, made anew for everybody else."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from router.proxy.headers import Headers

Network = IPv4Network | IPv6Network


class Forwarded:
    """The lines for requests of one connection; made once for it."""

    __slots__ = ("_lines", "_node", "_peer", "_proto", "trusted")

    def __init__(self, peer: str | None = None, proto: str = "http", proxies: Sequence[Network] = ()) -> None:
        """`peer`: the other end's address, None where it has none (a Unix socket); `proxies`: who is believed."""
        address = None if peer is None else _address(peer)
        self.trusted = address is not None and any(address in network for network in proxies)
        """Whether the other end is a proxy that is believed."""
        self._peer = b"" if address is None else str(address).encode()
        self._node = b'"[%b]"' % self._peer if isinstance(address, IPv6Address) else self._peer
        self._proto = proto.encode()
        lines = b"x-forwarded-for: %b\r\nx-forwarded-proto: %b\r\n" % (self._peer, self._proto)
        self._lines = b"" if address is None else lines

    def lines(self, headers: Headers) -> bytes:
        """Return the header lines that stand for what the client's head said of its way."""
        return self._appended(headers) if self.trusted else self._lines

    def _appended(self, headers: Headers) -> bytes:
        ways = [value for name, value in headers if name == b"x-forwarded-for" and value]
        lines = b"x-forwarded-for: %b\r\n" % b", ".join([*ways, self._peer])
        elements = [value for name, value in headers if name == b"forwarded" and value]
        if elements:
            elements.append(b"for=%b;proto=%b" % (self._node, self._proto))
            lines += b"forwarded: %b\r\n" % b", ".join(elements)
        if all(name != b"x-forwarded-proto" for name, _ in headers):
            lines += b"x-forwarded-proto: %b\r\n" % self._proto
        return lines


def _address(peer: str) -> IPv4Address | IPv6Address | None:
    """Read an address; one of IPv4 that comes through an IPv6 socket is what it is."""
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


NOWHERE = Forwarded()
"""For a request that came over no connection."""
