"""Replicas behind names: addresses and SRV records, what is missing, and what fails."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator
from pathlib import Path

import dns.rcode
import dns.resolver
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.adapters.discovery.description import NameSource, ServiceRecords, parse
from router.adapters.discovery.dns_names import (
    MAX_WEIGHT,
    Addresses,
    Record,
    Records,
    address_replicas,
    record_replicas,
    system_resolver,
)
from router.adapters.discovery.source import open_source
from router.adapters.discovery.trouble import Unreadable
from router.ports import Discovery
from tests.adapters.discovery.hearing import Log, hearing
from tests.adapters.discovery.name_server import NameServer

NAME = "vllm.llm.svc.cluster.local."
SERVICE = "_http._tcp.vllm.llm.svc.cluster.local."


@pytest.fixture
async def server() -> AsyncIterator[NameServer]:
    async with NameServer() as server:
        yield server


def opened(text: str, server: NameServer) -> Discovery:
    return open_source(text, 0.01, resolvers=server.resolver)


async def urls(text: str, server: NameServer) -> list[str]:
    """What one look finds."""
    source = parse(text)
    if isinstance(source, NameSource):
        return [each.url for each in await Addresses(source, server.resolver).read()]
    assert isinstance(source, ServiceRecords)
    return [each.url for each in await Records(source, server.resolver).read()]


# Addresses


@pytest.mark.parametrize("host", ["vllm", "vllm.llm.svc", "vllm.llm.svc.cluster.local", NAME])
async def test_short_names_and_whole_ones(server: NameServer, host: str) -> None:
    server.records[NAME, "A"] = ["10.0.0.2", "10.0.0.1", "10.0.0.2"]
    assert await urls(f"dns:{host}:8000", server) == ["http://10.0.0.1:8000", "http://10.0.0.2:8000"]


async def test_a_final_dot_ends_the_search(server: NameServer) -> None:
    server.records[NAME, "A"] = ["10.0.0.1"]
    assert await urls("dns:vllm.:8000", server) == []
    assert {name for name, _, _ in server.asked} == {"vllm."}


async def test_addresses_of_ipv6_where_there_are_no_others(server: NameServer) -> None:
    server.records[NAME, "AAAA"] = ["fd00::2", "fd00::1"]
    assert await urls("dns:vllm:8000", server) == ["http://[fd00::1]:8000", "http://[fd00::2]:8000"]


async def test_an_engine_with_addresses_of_both_kinds_is_one_replica(server: NameServer) -> None:
    server.records[NAME, "A"], server.records[NAME, "AAAA"] = ["10.0.0.1"], ["fd00::1"]
    assert await urls("dns:vllm:8000", server) == ["http://10.0.0.1:8000"]


async def test_what_is_said_of_all_of_them(server: NameServer) -> None:
    server.records[NAME, "A"] = ["10.0.0.1", "10.0.0.2"]
    source = parse("dns:https://vllm:8443?model=m&weight=2&ranks=2")
    assert isinstance(source, NameSource)
    found = await Addresses(source, server.resolver).read()
    assert [(each.url, each.rank, each.models, each.weight) for each in found] == [
        (f"https://10.0.0.{host}:8443", rank, ("m",), 2.0) for host in (1, 2) for rank in (0, 1)
    ]


async def test_more_than_a_datagram_holds(server: NameServer) -> None:
    server.records[NAME, "A"] = [f"10.0.1.{number}" for number in range(200)]
    assert len(await urls("dns:vllm:8000", server)) == 200
    assert "tcp" in {way for _, _, way in server.asked}


async def test_a_name_that_does_not_exist_has_no_replicas(server: NameServer) -> None:
    assert await urls("dns:vllm:8000", server) == []


async def test_a_name_without_addresses_has_no_replicas(server: NameServer) -> None:
    """As of a headless Service without a ready pod."""
    server.records[NAME, "TXT"] = ['"here"']
    assert await urls("dns:vllm:8000", server) == []


@pytest.mark.parametrize("code", [dns.rcode.SERVFAIL, dns.rcode.REFUSED, None])
async def test_a_server_that_does_not_know_says_nothing_of_replicas(
    server: NameServer, code: dns.rcode.Rcode | None
) -> None:
    server.answers[NAME] = [code]
    with pytest.raises(Unreadable, match="no name server answers" if code is None else dns.rcode.to_text(code)):
        await urls("dns:vllm:8000", server)


async def test_no_name_server_at_all(server: NameServer) -> None:
    def none() -> dns.resolver.Resolver:
        raise dns.resolver.NoResolverConfiguration("no nameservers")

    source = parse("dns:vllm:8000")
    assert isinstance(source, NameSource)
    with pytest.raises(Unreadable, match="no nameservers"):
        await Addresses(source, none).read()  # type: ignore[arg-type]


def test_the_system_s_resolver_is_the_one_of_resolv_conf() -> None:
    listed = [line.split()[1] for line in Path("/etc/resolv.conf").read_text().splitlines() if "nameserver " in line]
    if not listed:
        pytest.skip("this machine has no name server")
    assert [str(each) for each in system_resolver().nameservers] == listed


async def test_the_list_changes_with_the_name(server: NameServer, log: Log) -> None:
    server.records[NAME, "A"] = ["10.0.0.1"]
    async with hearing(opened("dns:vllm:8000", server)) as heard:
        await heard.these("http://10.0.0.1:8000")
        server.records[NAME, "A"] = ["10.0.0.3", "10.0.0.1"]
        await heard.these("http://10.0.0.1:8000", "http://10.0.0.3:8000")
        del server.records[NAME, "A"]
        await heard.these()
    assert len(heard.lists) == 3
    assert log.warnings == []


async def test_the_list_stays_while_no_one_answers_and_that_is_told_once(server: NameServer, log: Log) -> None:
    server.records[NAME, "A"] = ["10.0.0.1"]
    async with hearing(opened("dns:vllm:8000", server)) as heard:
        await heard.these("http://10.0.0.1:8000")
        server.answers[NAME] = [*[dns.rcode.SERVFAIL] * 5, None, dns.rcode.REFUSED]
        await log.until(2, logging.INFO)  # the two reasons after the first one
        server.records[NAME, "A"] = ["10.0.0.2"]
        server.answers.clear()
        await heard.these("http://10.0.0.2:8000")
    assert len(heard.lists) == 2
    assert len(log.warnings) == 2
    assert log.warnings[0].startswith("dns:vllm:8000 can't be read, its last list stays good: ")
    assert "SERVFAIL" in log.warnings[0]
    assert log.warnings[1] == "dns:vllm:8000 can be read again"


async def test_nothing_is_told_before_someone_answers(server: NameServer, log: Log) -> None:
    server.answers[NAME] = [dns.rcode.SERVFAIL]
    async with hearing(opened("dns:vllm:8000", server)) as heard:
        await log.until(1)
        assert heard.lists == []
        server.answers.clear()
        await heard.these()


async def test_one_kind_failing_does_not_bring_in_the_other(server: NameServer, log: Log) -> None:
    """Or every engine would be another, cold replica for as long."""
    server.records[NAME, "AAAA"] = ["fd00::1"]
    server.answers[NAME] = [dns.rcode.SERVFAIL]
    with pytest.raises(Unreadable):
        await urls("dns:vllm:8000", server)
    assert server.count("AAAA") == 0


@given(st.lists(st.ip_addresses().map(str)), st.randoms())
def test_the_order_of_addresses_says_nothing(addresses: list[str], chance: random.Random) -> None:
    source = NameSource("http", "vllm", 8000)
    mixed = [*addresses, *addresses[:2]]
    chance.shuffle(mixed)
    assert address_replicas(mixed, source) == address_replicas(addresses, source)
    assert len(address_replicas(addresses, source)) == len(set(addresses))


# SRV records


async def test_records_name_hosts_and_ports(server: NameServer) -> None:
    server.records[SERVICE, "SRV"] = ["0 50 8000 vllm-1.Vllm.llm.svc.cluster.local.", "0 50 8001 vllm-0.vllm."]
    hosts = ["vllm-0.vllm:8001", "vllm-1.vllm.llm.svc.cluster.local:8000"]
    assert await urls("srv:_http._tcp.vllm", server) == [f"http://{host}" for host in hosts]
    assert await urls(f"srv:https://{SERVICE}", server) == [f"https://{host}" for host in hosts]


async def test_a_service_that_is_not_there_and_one_that_says_so(server: NameServer) -> None:
    assert await urls("srv:_http._tcp.vllm", server) == []
    server.records[SERVICE, "SRV"] = ["0 0 0 ."]
    assert await urls("srv:_http._tcp.vllm", server) == []


async def test_a_target_that_is_no_host_name_is_left_out(server: NameServer) -> None:
    server.records[SERVICE, "SRV"] = ["0 1 8000 a\\@b.example.", "0 1 8000 good.example.", "0 1 0 port.example."]
    assert await urls("srv:_http._tcp.vllm", server) == ["http://good.example:8000"]


async def test_records_that_can_t_be_read_keep_the_list(server: NameServer, log: Log) -> None:
    server.records[SERVICE, "SRV"] = ["0 50 8000 a.example."]
    async with hearing(opened("srv:_http._tcp.vllm", server)) as heard:
        await heard.these("http://a.example:8000")
        server.answers[SERVICE] = [dns.rcode.SERVFAIL]
        await log.until(1)
        server.answers.clear()
        server.records[SERVICE, "SRV"] = ["0 50 8000 b.example."]
        await heard.these("http://b.example:8000")
    assert len(heard.lists) == 2


def weights(*records: Record, text: str = "srv:x") -> dict[str, float]:
    source = parse(text)
    assert isinstance(source, ServiceRecords)
    return {each.url: each.weight for each in record_replicas(records, source)}


def test_only_the_most_important_group_is_used() -> None:
    assert weights((20, 1, "spare", 80), (10, 1, "a", 80), (10, 1, "b", 80)) == {"http://a:80": 1.0, "http://b:80": 1.0}


def test_weights_are_relative_to_their_mean() -> None:
    assert weights((0, 30, "a", 80), (0, 10, "b", 80)) == {"http://a:80": 1.5, "http://b:80": 0.5}
    doubled = weights((0, 30, "a", 80), (0, 10, "b", 80), text="srv:x?weight=2")
    assert doubled == {"http://a:80": 3.0, "http://b:80": 1.0}
    assert weights((0, 0, "a", 80), (0, 0, "b", 80)) == {"http://a:80": 1.0, "http://b:80": 1.0}


def test_a_weight_of_0_among_others_is_a_very_small_one() -> None:
    found = weights((0, 0, "a", 80), (0, 100, "b", 80))
    assert 0 < found["http://a:80"] < found["http://b:80"] / 500


RECORDS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 65535), st.sampled_from("abcd"), st.integers(1, 3)))


@given(RECORDS, st.randoms())
def test_records_in_any_order_are_replicas_with_weights(records: list[Record], chance: random.Random) -> None:
    source = ServiceRecords("http", "x")
    found = record_replicas(records, source)
    mixed = [*records, *records[:2]]
    chance.shuffle(mixed)
    assert record_replicas(mixed, source) == found
    first = min((record[0] for record in records), default=0)
    assert {each.url for each in found} == {f"http://{host}:{port}" for at, _, host, port in records if at == first}
    assert all(0 < each.weight <= MAX_WEIGHT for each in found)
    assert len({each.identity for each in found}) == len(found)
