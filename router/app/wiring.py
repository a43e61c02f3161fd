"""Puts the house together, and settings into force."""

from __future__ import annotations

import functools
import secrets
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from router.adapters.decision_log import DecisionLog
from router.adapters.discovery.endpoints import endpoints
from router.adapters.discovery.source import open_source
from router.adapters.history import kept
from router.adapters.history.counting import History
from router.adapters.history.sessions import SessionLog
from router.adapters.kv_events.sources import read_given
from router.adapters.metrics.collector import RouterCollector
from router.adapters.queue_metrics import QueueCollector
from router.adapters.redis_store.address import parse
from router.adapters.redis_store.options import Options
from router.adapters.redis_store.store import RedisStore
from router.adapters.request_log import RequestLog
from router.adapters.state_file import read
from router.adapters.warm_up_metrics import WarmUpCounts
from router.app.admin.feed import Feed
from router.app.doorway import Doorway, engine_authorization
from router.app.house import House, add_replica, engine_tls, replica_id_of
from router.app.observers import Observers
from router.app.process.gate import Gate
from router.app.process.reloads import Reloads
from router.app.recording import Origin, Recording
from router.app.roster.members import STATIC, Roster
from router.app.roster.models import ModelList
from router.app.roster.touching import Body, Toucher
from router.app.roster.warming import Warming
from router.app.settings.model import Settings
from router.app.settings.values import tokenizer_pair
from router.core.admission import Rules
from router.core.fleet import Fleet
from router.core.policies import POLICIES
from router.core.snapshot import restore
from router.core.touching.touching import Touching
from router.core.types import ReplicaId
from router.ports import Endpoint
from router.proxy.door import Door
from router.proxy.plane import Limits, Plane
from router.proxy.vanished import Turns

if TYPE_CHECKING:
    from router.adapters.kv_events.following import KvEvents
    from router.adapters.tokenizer.service import TokenizerThreads
    from router.adapters.tracing.tracer import OtlpTracer


def build(settings: Settings, origin: Origin | None = None) -> House:
    """Build a router from its settings. Nothing is listening or connected yet; call it inside the event loop.

    `origin`: of what is recorded, where it is one of several workers.
    """
    router = secrets.token_hex(8)
    tie_seed = 0 if settings.redis is None else int(router, 16)
    fleet = Fleet(POLICIES[settings.policy], int(settings.index_bytes), settings.prefill_tokens_per_s, tie_seed)
    metrics, decisions = RouterCollector(fleet, time.monotonic), DecisionLog()
    request_log = RequestLog(sys.stderr.buffer) if settings.log_requests else None
    store = _store(settings, fleet, router)
    tracer = _tracer(settings)
    plane = Plane(fleet, _limits(settings), engine_authorization(settings), store, tracer=tracer)
    queue_metrics = QueueCollector(plane.admission.queue)
    history, feed = History(fleet, time.monotonic), Feed()
    sessions = SessionLog(history.now)
    seeing = (decisions, history, sessions, feed)
    plane.audience = Observers(metrics, queue_metrics, *seeing, *([request_log] if request_log else []))
    client = _control_client(settings, plane.authorization)
    saved = None if settings.state_file is None else read(settings.state_file)
    salt = store.replica_salt if store else saved.salt if saved else secrets.token_bytes(16)
    sources = tuple(open_source(text, settings.discover_interval_s) for text in settings.discover)
    orders = None if store is None else store.ordering.orders
    found: dict[ReplicaId, Endpoint] = {}
    models = ModelList()
    plane.tokenizer = tokenizer = _tokenizer(settings, models)
    house = House(
        settings=settings,
        fleet=fleet,
        plane=plane,
        probes={},
        endpoints=found,
        models=models,
        decisions=decisions,
        history=history,
        sessions=sessions,
        feed=feed,
        metrics=metrics,
        queue_metrics=queue_metrics,
        client=client,
        request_log=request_log,
        store=store,
        salt=salt,
        doorway=Doorway(Door(time.monotonic)),
        roster=Roster(functools.partial(replica_id_of, salt), [source.name for source in sources], orders),
        sources=sources,
        warming=_warming(settings, plane, client, found),
        gate=Gate(plane),
        reloads=Reloads(),
        recording=Recording(plane),
        tracer=tracer,
        tokenizer=tokenizer,
        kv_events=_kv_events(settings, plane, client, found),
        toucher=_toucher(settings, plane, client, found),
    )
    plane.sweeps += [house.doorway.door.sweep, Turns(lambda: plane.active).sweep]
    house.recording.origin = origin
    configure(house, settings)
    for member in house.roster.members().values():
        add_replica(house, member.endpoint)
    if saved is not None:
        restore(fleet, saved.snapshot, plane.clock())
        kept.resume(history, sessions, saved.history)
        house.remembered = saved.snapshot if sources else None
    return house


def _warming(
    settings: Settings, plane: Plane, client: httpx.AsyncClient, found: dict[ReplicaId, Endpoint]
) -> Warming | None:
    if not settings.warm_up_tokens:
        return None
    warming = Warming(plane, client, found, settings.warm_up_tokens, WarmUpCounts())
    plane.opening_seen = warming.opening_seen
    return warming


def _toucher(
    settings: Settings, plane: Plane, client: httpx.AsyncClient, found: dict[ReplicaId, Endpoint]
) -> Toucher | None:
    if not settings.touch:
        return None
    touching: Touching[Body] = Touching(
        plane.fleet, int(settings.touch_bytes), settings.touch_ratio, int(settings.index_bytes)
    )
    plane.keeper = toucher = Toucher(plane, client, found, touching)
    return toucher


def _store(settings: Settings, fleet: Fleet, router: str) -> RedisStore | None:
    if settings.redis is None:
        return None
    secret = settings.redis_secret
    options = Options(
        address=parse(settings.redis.get_secret_value()),
        prefix=settings.redis_prefix,
        secret=None if secret is None else secret.get_secret_value(),
        deadline_s=settings.redis_deadline_ms / 1000,
        ttl_s=settings.redis_ttl_s,
    )
    return RedisStore(fleet, options, router, time.monotonic)


def _tracer(settings: Settings) -> OtlpTracer | None:
    if settings.otlp_endpoint is None:
        return None
    # Imported here, since its packages are an optional extra and take a quarter of a second to import.
    from router.adapters.tracing.export import SpanExport
    from router.adapters.tracing.tracer import OtlpTracer

    scheme = "http" if settings.ssl_certfile is None else "https"
    return OtlpTracer(SpanExport(settings.otlp_endpoint), settings.trace_ratio, scheme, time.monotonic)


def _tokenizer(settings: Settings, models: ModelList) -> TokenizerThreads | None:
    if not settings.tokenizer:
        return None
    # Imported here, since its packages are an optional extra.
    from router.adapters.tokenizer.models import load_models
    from router.adapters.tokenizer.service import TokenizerThreads

    paths = {name: Path(path) for name, path in map(tokenizer_pair, settings.tokenizer)}
    loaded = load_models(paths, settings.chat_template, models.parent_of)
    return TokenizerThreads(loaded, settings.tokenizer_deadline_ms / 1000)


def _kv_events(
    settings: Settings, plane: Plane, client: httpx.AsyncClient, found: dict[ReplicaId, Endpoint]
) -> KvEvents | None:
    if settings.kv_events == "off":
        return None
    # Imported here, since its package is an optional extra.
    from router.adapters.kv_events.following import KvEvents, Options
    from router.adapters.kv_events.labels import Labels
    from router.adapters.kv_events.listing import ask_sources

    plane.label = Labels(secrets.randbits(64)).lines
    given = tuple(map(read_given, settings.kv_events_endpoint))
    return KvEvents(plane.fleet, found, functools.partial(ask_sources, client), Options(given, settings.kv_events_bind))


def _limits(settings: Settings) -> Limits:
    return Limits(
        max_body_bytes=int(settings.max_body_bytes),
        max_retries=settings.max_retries,
        silence_timeout_s=settings.silence_timeout_s,
        connect_timeout_s=settings.connect_timeout_s,
        vanish_timeout_s=settings.vanish_timeout_s,
        upstream_idle_s=settings.upstream_keepalive_s,
        sse_keepalive_s=settings.sse_keepalive_s,
    )


def _rules(settings: Settings) -> Rules:
    return Rules(
        depth_s=settings.queue_depth_s,
        max_wait_s=settings.max_queue_wait_s,
        max_requests=settings.max_queued_requests,
        max_bytes=int(settings.max_queued_bytes),
    )


def configure(house: House, settings: Settings) -> None:
    """Put settings into force: all that a reload may change."""
    house.doorway.apply(settings)  # first: it may raise KeyFileError
    house.settings = settings
    plane, care = house.plane, house.fleet.care
    plane.authorization = engine_authorization(settings)
    house.client.headers = _control_headers(plane.authorization)
    house.client.timeout = _control_timeout(settings)
    for pool in plane.pools.values():
        pool.connect_timeout_s, pool.idle_s = settings.connect_timeout_s, settings.upstream_keepalive_s
    plane.limits = _limits(settings)
    plane.bodies.limit_bytes = max(int(settings.max_bodies_bytes), 2 * plane.limits.max_body_bytes)
    plane.admission.rules = _rules(settings)
    plane.session_headers = _session_headers(settings)
    plane.aliases = house.models.aliases = aliases_of(settings)
    house.roster.put(STATIC, [endpoint for spec in settings.replica for endpoint in endpoints(spec)])
    house.fleet.forward_unknown = settings.unknown_model == "forward"
    if house.tracer is not None:
        house.tracer.ratio = settings.trace_ratio
    care.probe_failures, care.slow_start_s = settings.health_failures, settings.slow_start_s
    house.recording.apply(settings)


def aliases_of(settings: Settings) -> dict[str, str]:
    """Return the names that clients may use and the models they stand for."""
    pairs = (pair.split("=", 1) for pair in settings.alias)
    return {name.strip(): model.strip() for name, model in pairs}


def _session_headers(settings: Settings) -> tuple[bytes, ...]:
    return tuple(name.lower().encode("latin-1") for name in settings.session_header)


def _control_headers(authorization: bytes | None) -> dict[str, str]:
    return {"authorization": authorization.decode()} if authorization else {}


def _control_timeout(settings: Settings) -> httpx.Timeout:
    return httpx.Timeout(5.0, connect=settings.connect_timeout_s)


def _control_client(settings: Settings, authorization: bytes | None) -> httpx.AsyncClient:
    """Make the client for reading engines. Each reading connects anew, which tells whether the engine still accepts."""
    return httpx.AsyncClient(
        headers=_control_headers(authorization),
        timeout=_control_timeout(settings),
        limits=httpx.Limits(max_keepalive_connections=0),
        verify=engine_tls(),
        trust_env=False,
    )
