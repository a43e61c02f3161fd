"""One of four replicas is killed under 200 open streams and steady chats: only streams on it break."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

from router.core.types import OutcomeKind
from router.sim.faults import Fault, FaultKind
from router.sim.replica import SimReplica
from tests.faults.test_dies_mid_stream import events_until_cut
from tests.rig.client import Answer, Client, chat, request
from tests.rig.forms import FORMS
from tests.rig.running import Router
from tests.rig.stage import Stage
from tests.rig.talks import ChatTalk

STREAMS = 200
CHATS = 24
SLOW = 0.25
"""Of the speed of a GPU, so that 200 streams go on for as long as a test needs, and cost it little."""


class Chats:
    """Chats that go on all the time; each with a session, and one turn after the other."""

    def __init__(self, stage: Stage, router: Router) -> None:
        self.homes: dict[int, str | None] = {}
        """Where each chat's last turn ran."""
        self.failed: list[Answer] = []
        self.turns = 0
        self.cut = 0
        """Streams that were on the killed replica."""
        self._stage = stage
        self._router = router

    @contextlib.asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        asking = [asyncio.ensure_future(self._chat_on(number)) for number in range(CHATS)]
        try:
            await self._router.until(lambda: len(self.homes) == CHATS)
            yield
        finally:
            for each in asking:
                each.cancel()
            ended = await asyncio.gather(*asking, return_exceptions=True)
        assert {type(end) for end in ended} == {asyncio.CancelledError}, ended

    async def _chat_on(self, number: int) -> None:
        """Every other chat has whole answers: those of the killed replica are made elsewhere, and nobody notices."""
        client = await self._stage.client(self._router)
        while True:
            talk = ChatTalk(number, stream=bool(number % 2))
            for _ in range(8):
                body = {"model": "sim-model", "max_tokens": 2} | talk.ask()
                data = request(talk.path, body, headers=[("x-session-id", f"chat {number}")])
                try:
                    answer = await client.ask(data)
                except (asyncio.IncompleteReadError, ConnectionResetError):
                    assert talk.stream, "an answer in one piece was lost"
                    self.cut += 1
                    client = await self._stage.client(self._router)
                    answer = await client.ask(data)
                if answer.status != 200 or (talk.stream and answer.events()[-1] != "[DONE]"):
                    self.failed.append(answer)
                talk.take(answer)
                self.homes[number] = answer.replica
                self.turns += 1

    async def turns_more(self, count: int) -> None:
        """Wait until so many more turns have been answered."""
        enough = self.turns + count
        await self._router.until(lambda: self.turns >= enough or bool(self.failed))
        assert self.failed == []


async def open_streams(stage: Stage, router: Router) -> list[tuple[Client, Answer]]:
    """Streams without a session, which go on until they are left; their first event has come."""
    clients = [await stage.client(router) for _ in range(STREAMS)]
    for number, client in enumerate(clients):
        client.send(chat(f"{number}: a long answer", stream=True, max_tokens=1_000, ignore_eos=True))
    streams = [(client, await client.head()) for client in clients]
    for client, answer in streams:
        await client.chunk(answer)
    return streams


def kill(replica: SimReplica) -> None:
    """What kill -9 does: every connection is reset, and nothing listens any more."""
    replica.faults.set(Fault(FaultKind.REFUSE))
    replica.restart_cold()


async def test_only_streams_on_it_break_and_its_sessions_spread_over_the_others(stage: Stage) -> None:
    replicas = await stage.replicas(4, time_scale=SLOW, recorded_requests=0)
    router = await stage.router(*replicas, watched=True)
    await router.until(lambda: all(replica.models for replica in router.house.fleet))
    victim, others = replicas[1], {router.id_of(replica) for replica in replicas if replica is not replicas[1]}
    streams = await open_streams(stage, router)
    by_home = Counter(answer.replica for _, answer in streams)
    assert set(by_home.values()) == {STREAMS // 4}, "spread evenly"
    chats = Chats(stage, router)
    async with chats.going_on():
        await chats.turns_more(CHATS)
        before = dict(chats.homes)
        lost = [number for number, home in before.items() if home == router.id_of(victim)]
        assert len(lost) >= 3, before
        kill(victim)
        broken = [(client, answer) for client, answer in streams if answer.replica == router.id_of(victim)]
        whole = [(client, answer) for client, answer in streams if answer.replica != router.id_of(victim)]
        for client, answer in broken:
            *_, last = await events_until_cut(client, answer)
            assert FORMS["chat"].error_of(last)["code"] == "upstream_died"
        await router.until(lambda: all(chats.homes[number] in others for number in lost) or bool(chats.failed))
        assert {chats.homes[number] for number in lost} == others, "its sessions are spread over all the others"
        stayed = [number for number, home in before.items() if home in others]
        assert [chats.homes[number] for number in stayed] == [before[number] for number in stayed], "nobody else moved"
        for client, answer in whole:
            event = await client.event(answer)
            assert event["choices"]
        health = router.books(victim).health
        assert not health.up
        victim.faults.clear()
        await router.until(lambda: health.up, "it is not readmitted")
        asked = await asyncio.gather(*(stage.ask(router, chat(f"new {number}", max_tokens=1)) for number in range(12)))
        assert router.id_of(victim) in {answer.replica for answer in asked}
        await chats.turns_more(CHATS)
    assert chats.failed == []
    ends = Counter(record.outcome for record in router.records.finished)
    assert len(broken) == STREAMS // 4
    assert ends[OutcomeKind.DIED] == len(broken) + chats.cut
    assert set(ends) <= {OutcomeKind.COMPLETED, OutcomeKind.DIED}
    for client, _ in whole:
        client.leave()
    await router.idle()
