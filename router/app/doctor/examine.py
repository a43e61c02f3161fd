"""The examination from start to end: look at router and engines, send the requests, gather what was found."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from random import Random

from router.app.doctor.asking import Asker, asking, bearer
from router.app.doctor.engine_checks import check_engine
from router.app.doctor.engines import Engine, look_at
from router.app.doctor.findings import Check, Finding, Level, Remarks, worst
from router.app.doctor.fleet_checks import check_fleet
from router.app.doctor.keep_alive import check_keep_alive
from router.app.doctor.probing import probe
from router.app.doctor.router_checks import check_reading, check_router
from router.app.doctor.routers import RouterView, Target, look_at_router, places_of
from router.app.doctor.streams import duration_s
from router.app.doctor.streams import judge as judge_streams
from router.app.doctor.two_turns import Evidence, TwoTurns
from router.app.doctor.verdict import engine_of
from router.app.doctor.verdict import judge as judge_turns

TURNS_S = 45.0
"""Both turns, the wait for the counters and two streams: a healthy fleet needs a few seconds."""

STREAM_LOOKS = 2
"""Streams count as gathered when they are so each time: once, this process itself may have been held up."""

TURNS = Remarks("two turns")


class Unreachable(Exception):
    """The router does not answer, so there is nothing to examine. The message is one line."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How far the examination goes."""

    requests: bool = True
    """Whether requests are sent that make engines work."""
    thorough: bool = False
    """Whether to wait for what takes seconds: the engines' keep-alive."""


@dataclass(frozen=True, slots=True)
class Report:
    """All that was found, in the order in which it is told."""

    version: str | None
    """The router's."""
    findings: tuple[Finding, ...]

    @property
    def sound(self) -> bool:
        """Tell whether there is no problem; warnings are none."""
        return worst(self.findings) is not Level.PROBLEM


async def examine(target: Target, extent: Extent, chance: Random) -> Report:
    """Examine a set-up.

    Raises:
        Unreachable: the router does not answer.
    """
    async with asking() as asker:
        view = await look_at_router(asker, target)
        if not view.reachable:
            raise Unreachable(f"can't reach the router at {target.router}: {view.live.failure}")
        places = places_of(view, target)
        engines = await asyncio.gather(*(look_at(asker, place, target.engine_key) for place in places))
        found = check_router(view, bool(target.replicas))
        idle = asyncio.ensure_future(_gathered(map(check_keep_alive, engines if extent.thorough else ())))
        try:
            sent = await _requests(asker, target, view, engines, chance) if extent.requests else _unsent()
            measured = await idle
        finally:
            idle.cancel()
    found += [finding for engine in engines for finding in (*check_engine(engine), *check_reading(engine))]
    return Report(view.version, (*found, *measured, *check_fleet(engines), *sent))


async def _gathered(checks: Iterable[Awaitable[list[Finding]]]) -> list[Finding]:
    return [finding for found in await asyncio.gather(*checks) for finding in found]


def _unsent() -> list[Finding]:
    return [TURNS.note(Check.TWO_TURNS, "not run, nor other requests: --no-requests")]


async def _requests(
    asker: Asker, target: Target, view: RouterView, engines: Sequence[Engine], chance: Random
) -> list[Finding]:
    """Send all requests there are to be sent: first to each engine, then through the router."""
    key = target.engine_key
    probes = await asyncio.gather(*(probe(asker, engine, key, Random(chance.getrandbits(64))) for engine in engines))
    found = [finding for probed in probes for finding in probed.findings]
    tokens_per_word = max((probed.tokens_per_word or 1.0 for probed in probes), default=1.0)
    try:
        async with asyncio.timeout(TURNS_S):
            return found + await _through_router(asker, target, view, engines, chance, tokens_per_word)
    except TimeoutError:
        late = TURNS.problem(
            Check.TWO_TURNS, f"not done within {TURNS_S:g} s", "the fleet is full or held up", "see the queue"
        )
        return [*found, late]


async def _through_router(
    asker: Asker,
    target: Target,
    view: RouterView,
    engines: Sequence[Engine],
    chance: Random,
    tokens_per_word: float,
) -> list[Finding]:
    model = target.model or _first_model(view, engines)
    if model is None:
        why = f"/v1/models: {view.models.outcome}" if not view.models.ok else "no replica lists a model"
        change = "set OPENAI_API_KEY" if view.models.status in (401, 403) else "--model NAME"
        return [TURNS.problem(Check.TWO_TURNS, "not run: no model is known", why, change)]
    turns = TwoTurns(asker, target, model, engines, chance, tokens_per_word)
    if not turns.prompt_tokens:
        return [TURNS.note(Check.TWO_TURNS, f"not run: {model} takes too few tokens for three blocks")]
    evidence = await turns.run()
    all_seen = bool(view.about) and bool(engines) and all(engine.is_vllm for engine in engines)
    found = judge_turns(evidence, engines, all_seen)
    if len(view.served) > 1 and target.model is None:
        found.append(TURNS.note(Check.TWO_TURNS, f"tried with {model} alone", "", "--model NAME for another one"))
    return found + await _streams(asker, target, evidence, engines)


def _first_model(view: RouterView, engines: Sequence[Engine]) -> str | None:
    """Return a model that clients can ask for, and rather a whole one than an adapter.

    A router that has just started, or can't read its engines' lists, lists none: then one of the engines' own.
    """
    whole = [card.name for engine in engines for card in engine.models if card.parent is None]
    return next((name for name in view.served if name in whole), next(iter([*view.served, *whole]), None))


async def _streams(asker: Asker, target: Target, evidence: Evidence, engines: Sequence[Engine]) -> list[Finding]:
    """Compare the stream of turn 2 through the router with that of the engine which answered it."""
    engine = engine_of(engines, evidence.second.replica)
    if engine is None or evidence.body is None or not evidence.second.reply.ok:
        return []
    told: list[Finding] = []
    for _ in range(STREAM_LOOKS):
        lengths: list[float | None] = []
        for base, key in ((engine.place.url, target.engine_key), (target.router, target.client_key)):
            lengths.append(await duration_s(asker, base + evidence.path, evidence.body, bearer(key)))
        told = [judge_streams(*lengths)]
        if told[0].level is not Level.WARNING:
            break
    return told
