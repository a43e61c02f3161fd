"""The roster: several sources name replicas; what comes of it, and how the fleet follows."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.app.roster.following import follow, source_loops
from router.app.roster.members import ADMIN, STATIC, Roster
from router.core.health import State
from router.core.orders import Kind, Listed
from router.ports import Endpoint
from tests.rig.client import chat
from tests.rig.running import Router
from tests.rig.stage import Stage

ONE, TWO = "http://gpu-1:8000", "http://gpu-2:8000"


def id_of(endpoint: Endpoint) -> str:
    return f"{endpoint.url}|{endpoint.uid}|{endpoint.rank}"


def roster(*sources: str) -> Roster:
    return Roster(id_of, sources)


def named(roster: Roster) -> dict[str, tuple[str, ...]]:
    return {replica_id: member.sources for replica_id, member in roster.members().items()}


# Who names what


def test_a_replica_of_two_sources_is_one_and_leaves_with_the_last() -> None:
    book = roster("file", "dns")
    book.put("file", [Endpoint(ONE, weight=2.0), Endpoint(TWO)])
    book.put("dns", [Endpoint(ONE, models=("m",), labels=(("a", "b"),))])
    assert named(book) == {f"{ONE}||None": ("file", "dns"), f"{TWO}||None": ("file",)}
    assert book.members()[f"{ONE}||None"].endpoint == Endpoint(ONE, "", None, ("m",), 2.0, (("a", "b"),))
    book.put("file", [])
    assert named(book) == {f"{ONE}||None": ("dns",)}
    assert book.members()[f"{ONE}||None"].endpoint.weight == 1.0
    book.put("dns", [])
    assert named(book) == {}


def test_another_uid_or_rank_at_an_address_is_another_replica() -> None:
    book = roster("pods")
    book.put("pods", [Endpoint(ONE, uid="a", rank=rank) for rank in (0, 1)])
    assert set(named(book)) == {f"{ONE}|a|0", f"{ONE}|a|1"}
    book.put("pods", [Endpoint(ONE, uid="b", rank=0)])
    assert set(named(book)) == {f"{ONE}|b|0"}


def test_there_is_one_replica_at_an_address_with_the_uid_of_whoever_knows_it() -> None:
    book = roster("pods")
    book.put(STATIC, [Endpoint(ONE, weight=3.0)])
    book.put("pods", [Endpoint(ONE, uid="a", leaving=True)])
    (member,) = book.members().values()
    assert member.endpoint == Endpoint(ONE, "a", weight=3.0, leaving=True)


@pytest.mark.parametrize("turned", [False, True])
def test_a_pod_that_takes_the_address_of_one_that_leaves_comes_instead_of_it(turned: bool) -> None:
    book, pods = roster("pods"), [Endpoint(ONE, uid="old", leaving=True), Endpoint(ONE, uid="new")]
    book.put("pods", pods[::-1] if turned else pods)
    assert set(named(book)) == {f"{ONE}|new|None"}


def test_what_the_operator_puts_comes_first() -> None:
    book = roster()
    book.put(STATIC, [Endpoint(ONE)])
    book.orders.give(Kind.REPLICA, "mine", True, 1, Listed(ONE, weight=5.0))
    (member,) = book.members().values()
    assert (member.name, member.sources, member.endpoint.weight) == ("mine", (ADMIN, STATIC), 5.0)


def test_a_source_that_was_not_announced_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        roster().put("dns", [])


def test_the_roster_is_complete_when_every_source_has_spoken() -> None:
    assert roster().complete.is_set()
    book = roster("file", "dns")
    for source in (STATIC, "dns", "dns"):
        book.put(source, [])
        assert not book.complete.is_set()
    book.put("file", [])
    assert book.complete.is_set()


said = st.lists(
    st.builds(Endpoint, st.sampled_from([ONE, TWO]), st.sampled_from(["", "a", "b"]), st.sampled_from([None, 0]))
)


@given(st.lists(st.tuples(st.sampled_from([STATIC, "x", "y"]), said)))
def test_only_the_last_lists_count_and_no_address_is_there_twice(lists: list[tuple[str, list[Endpoint]]]) -> None:
    book, again = roster("x", "y"), roster("x", "y")
    for source, endpoints in lists:
        book.put(source, endpoints)
    for source, endpoints in dict(lists).items():
        again.put(source, endpoints)
    assert book.members() == again.members()
    places = [(member.endpoint.url, member.endpoint.rank) for member in book.members().values()]
    every = {(endpoint.url, endpoint.rank) for endpoints in dict(lists).values() for endpoint in endpoints}
    assert sorted(places, key=str) == sorted(every, key=str)


# The fleet follows


def put(router: Router, *endpoints: Endpoint) -> None:
    router.house.roster.put(STATIC, endpoints)
    follow(router.house)


async def test_what_is_said_of_a_replica_changes_in_place(stage: Stage) -> None:
    replicas = await stage.replicas(2)
    router = await stage.router(*replicas)
    one, two = router.books(replicas[0]), router.books(replicas[1])
    other = Endpoint(replicas[1].url)
    put(router, Endpoint(replicas[0].url, models=("m",), weight=2.0, labels=(("zone", "a"),)), other)
    assert (router.books(replicas[0]), router.books(replicas[1])) == (one, two)
    assert (one.weight, set(one.models)) == (2.0, {"m"})
    assert one.prefill.tokens_per_s == 2 * two.prefill.tokens_per_s
    one.models = frozenset({"what-the-engine-says"})
    put(router, Endpoint(replicas[0].url, models=("n",)), other)
    assert one.models == {"what-the-engine-says"}
    assert one.weight == 1.0


async def test_a_replica_that_is_about_to_be_stopped_drains_until_it_is_not(stage: Stage) -> None:
    replicas = await stage.replicas(2)
    router = await stage.router(*replicas)
    leaving = [Endpoint(replicas[0].url, leaving=True), Endpoint(replicas[1].url)]
    put(router, *leaving)
    assert router.books(replicas[0]).health.state is State.DRAINING
    asked = [await stage.ask(router, chat(f"{number} words of a story, " * 20)) for number in range(6)]
    assert {answer.replica for answer in asked} == {router.id_of(replicas[1])}
    put(router, *(Endpoint(replica.url) for replica in replicas))
    assert router.books(replicas[0]).health.state is State.JOINING
    asked = [await stage.ask(router, chat(f"{number} lines of a song, " * 20)) for number in range(6)]
    assert router.id_of(replicas[0]) in {answer.replica for answer in asked}


async def test_an_ordered_drain_outlives_sources_and_failures(stage: Stage) -> None:
    replicas = await stage.replicas(2)
    router = await stage.router(*replicas)
    ident, both = router.id_of(replicas[0]), [Endpoint(replica.url) for replica in replicas]
    router.house.roster.orders.give(Kind.DRAIN, ident, True, 1)
    follow(router.house)
    put(router, Endpoint(replicas[0].url, leaving=True), both[1])
    put(router, *both)
    assert router.books(replicas[0]).health.state is State.DRAINING
    put(router, both[1])
    put(router, *both)
    health = router.books(replicas[0]).health
    assert health.state is State.DRAINING, "it is the same one that came back"
    health.restarted(0.0)
    health.succeeded(0.0)
    states = [health.state]
    router.house.roster.orders.give(Kind.DRAIN, ident, False, 2)
    follow(router.house)
    assert [*states, health.state] == [State.DRAINING, State.JOINING]


async def test_a_new_pod_at_an_old_address_is_cold(stage: Stage) -> None:
    replica = await stage.replica()
    router = await stage.router()
    story = "a long story, " * 200
    put(router, Endpoint(replica.url, uid="old"))
    first = await stage.ask(router, chat(story))
    assert (await stage.ask(router, chat(story))).reason == "warm"
    put(router, Endpoint(replica.url, uid="new"))
    assert router.id_of(replica) != first.replica
    assert len(router.books(replica).mirror) == 0
    assert (await stage.ask(router, chat(story))).reason == "new"


async def test_each_change_is_one_line_in_the_log(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "warmroute.fleet")
    router = await stage.router(ONE)
    old = router.id_of(ONE)

    def lines() -> list[str]:
        texts = [record.getMessage() for record in caplog.records if record.name == "warmroute.fleet"]
        caplog.clear()
        return texts

    put(router, Endpoint(ONE), Endpoint(TWO, rank=1))
    new = router.id_of(TWO)
    assert lines() == [f"replica {new} ({TWO} rank 1) joins: --replica"]
    put(router, Endpoint(ONE, weight=2.0, labels=(("a", "b"),)), Endpoint(TWO, rank=1))
    assert lines() == [f"replica {old} ({ONE}): weight 1.0 becomes 2.0, labels () becomes (('a', 'b'),)"]
    put(router, Endpoint(ONE, weight=2.0, labels=(("a", "b"),), leaving=True))
    assert lines() == [
        f"replica {new} ({TWO} rank 1) leaves, 0 requests run on",
        f"replica {old} ({ONE}) drains: it is about to be stopped",
    ]
    put(router, Endpoint(ONE, weight=2.0, labels=(("a", "b"),), leaving=True))
    assert lines() == []


class Watched:
    """Keeps who came and went, and sees that they are in the books while they do."""

    def __init__(self, router: Router) -> None:
        self.events: list[tuple[str, str]] = []
        self._house = router.house

    def begin(self, replica_id: str) -> None:
        self.events.append(("begin", self._house.endpoints[replica_id].url))

    def end(self, replica_id: str) -> None:
        self.events.append(("end", self._house.endpoints[replica_id].url))


async def test_engines_are_watched_as_long_as_they_are_there(stage: Stage) -> None:
    router = await stage.router(ONE)
    router.house.roster.watching = watched = Watched(router)
    put(router, Endpoint(TWO))
    put(router, Endpoint(TWO, weight=2.0))
    assert watched.events == [("end", ONE), ("begin", TWO)]


# Sources


class Talking:
    """A source that says what a test puts into it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lists: asyncio.Queue[list[Endpoint]] = asyncio.Queue()

    async def endpoints(self) -> AsyncIterator[list[Endpoint]]:
        while True:
            yield await self.lists.get()


async def test_every_source_has_its_part_of_the_fleet(stage: Stage) -> None:
    router = await stage.router(ONE)
    sources = Talking("file:a"), Talking("file:b")
    book = Roster(router.house.roster._id_of, [source.name for source in sources])
    book.put(STATIC, [Endpoint(ONE)])
    house = dataclasses.replace(router.house, roster=book, sources=sources)
    loops = [asyncio.ensure_future(loop()) for loop in source_loops(house)]

    def urls() -> list[str]:
        return [endpoint.url for endpoint in house.endpoints.values()]

    sources[0].lists.put_nowait([Endpoint(TWO)])
    await router.until(lambda: urls() == [ONE, TWO])
    assert not book.complete.is_set()
    sources[1].lists.put_nowait([Endpoint(TWO), Endpoint("http://gpu-3:8000")])
    await router.until(lambda: len(urls()) == 3)
    assert book.complete.is_set()
    sources[0].lists.put_nowait([])
    sources[1].lists.put_nowait([Endpoint(TWO)])
    await router.until(lambda: urls() == [ONE, TWO])
    sources[1].lists.put_nowait([])
    await router.until(lambda: urls() == [ONE])
    for loop in loops:
        loop.cancel()
    await asyncio.gather(*loops, return_exceptions=True)
