"""From what was asked for to a plan and a workload."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from router.app.replay.asked import Asked
from router.app.replay.numbers import count, number, numbers
from router.app.replay.opening import open_trace
from router.app.settings.sources import ConfigError
from router.replay import profiles
from router.replay.chats import Chats
from router.replay.demand import Agents, ClosedLoop, OpenLoop, Workload
from router.replay.plan import Plan
from router.replay.traces.formats import Trace
from router.sim.types import EngineConfig

CHATS = "chats:"
"""Begins what stands in place of a file: the generator, and its sessions a second."""
WARM_UP_MINUTES = {"chats": 2.0, "agents": 10.0, "stamped": 0.0}
"""Chats take this long until as many leave as come; agents come with long histories, all of which are computed once.
Of a trace with time stamps every request counts unless told otherwise."""
MINUTES = {"chats": 10.0, "agents": 20.0}
"""Counted, of traffic without an end: thousands of requests."""
LIVE = 40
"""Coding agents at once: a moderate load for eight of the default replicas."""
REPLICAS = 8


@dataclass(frozen=True, slots=True)
class Ordered:
    """A run but for its policy, ready to go."""

    plan: Plan
    workload: Workload
    notes: tuple[str, ...] = ()
    """What a reader of the figures should know of the traffic."""


def order_of(asked: Asked) -> Ordered:
    """Read the trace and settle what was left open. ConfigError: it can't be read, or arguments contradict it."""
    if asked.source.startswith(CHATS):
        return _chats(asked)
    trace = open_trace(Path(asked.source))
    if asked.block_tokens not in {None, trace.block_tokens}:
        _refuse(f"--block-tokens {asked.block_tokens}: the trace has blocks of {trace.block_tokens} tokens")
    return _stamped(asked, trace) if trace.stamped else _agents(asked, trace)


def _chats(asked: Asked) -> Ordered:
    if asked.closed or asked.live is not None:
        _refuse("--closed and --live are for recorded sessions, not for chats:RATE")
    plan = _plan(asked, "chats", None)
    rate = number(asked.source.removeprefix(CHATS), CHATS + "RATE") * asked.rate_scale
    return Ordered(plan, Chats(rate, plan.minutes * 60, asked.block_tokens or EngineConfig().block_tokens))


def _agents(asked: Asked, trace: Trace) -> Ordered:
    if asked.rate_scale != 1.0:
        _refuse("--rate-scale: coding agents come when the one before has gone; say how many there are with --live")
    plan = _plan(asked, "agents", trace)
    most_tokens = plan.engine.kv_tokens // 2
    fitting = sum(one.prompt_tokens < most_tokens for session in trace.sessions for one in session)
    if not fitting:
        _refuse(f"no request of the trace fits into half a cache of {plan.engine.kv_tokens} tokens")
    live = asked.live or LIVE
    spread_s = plan.warm_up_minutes * 60
    workload = Agents(f"{live} coding agents", trace.sessions, live, spread_s, most_tokens)
    left_out = sum(map(len, trace.sessions)) - fitting
    note = f"{left_out:,} requests of more than {most_tokens:,} tokens, half a cache, are left out"
    return Ordered(plan, workload, (note,) if left_out else ())


def _stamped(asked: Asked, trace: Trace) -> Ordered:
    if asked.live is not None:
        _refuse("--live is for coding agents; this trace has time stamps: see --rate-scale")
    if asked.closed and not trace.names_sessions:
        _refuse("--closed: the trace names no sessions, so nobody can wait for an answer")
    plan = _plan(asked, "stamped", trace)
    name = Path(asked.source).name
    if asked.closed:
        return Ordered(plan, ClosedLoop(name, trace.sessions, asked.rate_scale))
    return Ordered(plan, OpenLoop(name, trace.requests, asked.rate_scale))


def _plan(asked: Asked, kind: str, trace: Trace | None) -> Plan:
    fleet = trace.fleet if trace else None
    warm_up = WARM_UP_MINUTES[kind] if asked.warm_up_minutes is None else asked.warm_up_minutes
    return Plan(
        policy="",
        engine=_engine(asked, fleet.kv_tokens if fleet else 0),
        replicas=asked.replicas or (fleet.replicas if fleet else 0) or REPLICAS,
        speeds=numbers(asked.speeds, "--speeds") if asked.speeds else (),
        minutes=warm_up + _minutes(asked, kind, trace, warm_up),
        warm_up_minutes=warm_up,
        seed=asked.seed,
        routers=asked.routers,
        sync_ms=asked.sync_ms,
        touch=asked.touch,
    )


def _engine(asked: Asked, recorded_kv_tokens: int) -> EngineConfig:
    if asked.model_profile not in profiles.names():
        _refuse(f"--model-profile: there is no {asked.model_profile!r}; there are {', '.join(profiles.names())}")
    engine = profiles.engine_of(asked.model_profile)
    if asked.kv_tokens is not None:
        return replace(engine, kv_tokens=count(asked.kv_tokens, "--kv-tokens"))
    return replace(engine, kv_tokens=recorded_kv_tokens or engine.kv_tokens)


def _minutes(asked: Asked, kind: str, trace: Trace | None, warm_up: float) -> float:
    """Counted ones: as asked for, or all that a trace has behind the warm-up."""
    if asked.minutes is not None:
        return asked.minutes
    if kind != "stamped" or trace is None:
        return MINUTES[kind]
    # A second more than the last arrival, which would lie on the border else.
    left = (trace.duration_s / asked.rate_scale + 1.0) / 60 - warm_up
    if left <= 0:
        _refuse(f"--warm-up {warm_up:g}: the trace is over before that")
    return left


def _refuse(what: str) -> NoReturn:
    raise ConfigError(what)
