"""Replicas behind a name in the DNS: its addresses, or its SRV records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

import dns.asyncresolver
import dns.exception
import dns.rdata
import dns.resolver
from dns.rdtypes.IN.SRV import SRV
from msgspec.structs import replace

from router.adapters.discovery.description import NameSource, ServiceRecords, is_dns_name
from router.adapters.discovery.trouble import Unreadable
from router.ports import Endpoint

LIFETIME_S = 5.0
"""For one question, all servers and tries together: as long as the system's own resolver waits."""

LEAST_WEIGHT = 0.1
"""What a weight of 0 counts as among others: RFC 2782 wants a very small chance, and none is not that."""

MAX_WEIGHT = 1000.0
"""As `endpoints.checked_weight` allows."""

Resolvers = Callable[[], dns.asyncresolver.Resolver]


def system_resolver() -> dns.asyncresolver.Resolver:
    """Return a resolver as /etc/resolv.conf describes it now. Raises dns.exception.DNSException where it can't be."""
    resolver = dns.asyncresolver.Resolver()
    resolver.lifetime = LIFETIME_S
    return resolver


class Addresses:
    """A name's addresses, each of them a replica.

    Those of IPv6 count only where there is none of IPv4: a name of a network with both has every engine twice.
    """

    def __init__(self, source: NameSource, resolvers: Resolvers = system_resolver) -> None:
        self._source = source
        self._resolvers = resolvers

    async def read(self) -> list[Endpoint]:
        """Return the list, as `polled.Reader` says."""
        host, resolvers = self._source.host, self._resolvers
        found = await _ask(resolvers, host, "A") or await _ask(resolvers, host, "AAAA")
        return address_replicas([record.to_text() for record in found], self._source)


class Records:
    """A name's SRV records, each of them a replica."""

    def __init__(self, source: ServiceRecords, resolvers: Resolvers = system_resolver) -> None:
        self._source = source
        self._resolvers = resolvers

    async def read(self) -> list[Endpoint]:
        """Return the list, as `polled.Reader` says."""
        found = await _ask(self._resolvers, self._source.name, "SRV")
        return record_replicas([_plain(cast("SRV", record)) for record in found], self._source)


def address_replicas(addresses: Iterable[str], source: NameSource) -> list[Endpoint]:
    """Return the replicas at these addresses, in an order that does not depend on theirs."""
    hosts = sorted({f"[{address}]" if ":" in address else address for address in addresses})
    return [
        endpoint for host in hosts for endpoint in source.traits.replicas(f"{source.scheme}://{host}:{source.port}")
    ]


Record = tuple[int, int, str, int]
"""Priority, weight, target and port."""


def record_replicas(records: Iterable[Record], source: ServiceRecords) -> list[Endpoint]:
    """Return the replicas of the most important group, those with the lowest priority number.

    Their weights are relative to the group's mean, so that they mean the same beside replicas of other sources.
    """
    known = sorted({record for record in records if record[2]})
    chosen = [record for record in known if record[0] == known[0][0]]
    by_place: dict[tuple[str, int], float] = {}
    for _, weight, target, port in chosen:
        by_place[target, port] = max(by_place.get((target, port), 0.0), float(weight))
    heaviest = max(by_place.values(), default=0.0)
    weights = {place: max(weight, LEAST_WEIGHT) if heaviest else 1.0 for place, weight in by_place.items()}
    mean = sum(weights.values()) / max(1, len(weights))
    return [
        replace(endpoint, weight=min(MAX_WEIGHT, endpoint.weight * weight / mean))
        for (target, port), weight in weights.items()
        for endpoint in source.traits.replicas(f"{source.scheme}://{target}:{port}")
    ]


def _plain(record: SRV) -> Record:
    """The target without its final dot, so that it is the name a certificate has; empty for none that can be used."""
    target = record.target.to_text(omit_final_dot=True).lower()
    usable = is_dns_name(target) and record.port > 0  # the root, as a target, says that there is no such service
    return record.priority, record.weight, target if usable else "", record.port


async def _ask(resolvers: Resolvers, name: str, kind: str) -> list[dns.rdata.Rdata]:
    """Return the records of a kind; none where the name, or that kind of it, does not exist. Raises Unreadable."""
    try:
        return list(await resolvers().resolve(name, kind, search=True))
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
        return []
    except dns.exception.Timeout:
        raise Unreadable(f"no name server answers a question for {kind}") from None
    except (dns.exception.DNSException, OSError) as error:
        raise Unreadable(" ".join(str(error).split()) or type(error).__name__) from None
