"""What is said of the router. Pure: a `RouterView` in, findings out."""

from __future__ import annotations

from collections.abc import Iterator

from router import __version__
from router.app.doctor.engines import Engine, Row
from router.app.doctor.findings import Check, Finding, Remarks
from router.app.doctor.routers import RouterView

ROUTER = Remarks("router")

_ADVICE = {
    "slow": "a Redis nearby, or a longer --redis-deadline-ms",
    "refusing": "see what Redis says: it takes no writes",
    "down": "--redis and the way there; turns that other routers served are cold until then",
}


def check_router(view: RouterView, given_replicas: bool) -> list[Finding]:
    """Return all that is to be said of a router."""
    found = [*_ready(view), *_admin(view, given_replicas)]
    if view.about:
        found += [*_policy(view), *_queue(view), *_redis(view), *_routers(view)]
        found += [finding for row in view.replicas for finding in _replica(row)]
    return found


def _ready(view: RouterView) -> Iterator[Finding]:
    if not view.live.ok:
        yield ROUTER.warning(
            Check.ROUTER,
            f"/livez: {view.live.outcome}",
            "a Warmroute's client port answers 200 there",
            "give --router the client port; let a proxy in front pass /livez and /readyz",
        )
        return
    counts = view.ready.told
    up, known = counts.get("up"), counts.get("replicas")
    told = f"{up} of {known} replicas are up" if known is not None else f"/readyz: {view.ready.outcome}"
    if view.ready.ok and up == known:
        yield ROUTER.ok(Check.READY, told)
    elif view.ready.ok:
        yield ROUTER.warning(Check.READY, told, "the others have all the load", "see the replicas below")
    else:
        yield ROUTER.problem(Check.READY, told, "no request can be answered", "see the replicas below, or add some")


def _admin(view: RouterView, given_replicas: bool) -> Iterator[Finding]:
    unseen = "only the replicas given by hand are looked at" if given_replicas else "no replica can be looked at"
    if view.fleet.status == 401:
        yield ROUTER.warning(
            Check.ADMIN, "the admin port wants its token", unseen, "set WARMROUTE_ADMIN_TOKEN to the router's"
        )
    elif view.fleet.status == 403:
        yield ROUTER.warning(
            Check.ADMIN, "the admin port refuses this host name", unseen, "give --admin an address, or localhost"
        )
    elif not view.about:
        yield ROUTER.warning(
            Check.ADMIN,
            f"no admin API: {view.fleet.outcome}",
            unseen,
            "--admin URL of the router's admin port; run doctor where it can be reached",
        )
    elif view.version in (None, __version__):
        yield ROUTER.ok(Check.ADMIN, f"Warmroute {view.version}, {len(view.replicas)} replicas known")
    else:
        yield ROUTER.note(Check.ADMIN, f"the router is Warmroute {view.version}, this is {__version__}")


def _policy(view: RouterView) -> Iterator[Finding]:
    policy = view.about.get("policy")
    if policy == "affinity":
        yield ROUTER.ok(Check.POLICY, "affinity")
    elif policy is not None:
        yield ROUTER.warning(
            Check.POLICY,
            f"{policy}",
            "it does not weigh what replicas hold against how busy they are",
            "--policy affinity, which is the default",
        )


def _queue(view: RouterView) -> Iterator[Finding]:
    queue = view.about.get("queue") or {}
    waiting = sum((queue.get("requests") or {}).values())
    running = sum((row.get("ledger") or {}).get("streams", 0) for row in view.replicas)
    if not waiting:
        yield ROUTER.ok(Check.QUEUE, "nothing waits in the router")
    elif waiting <= running:
        yield ROUTER.note(Check.QUEUE, f"{waiting} requests wait in the router, {running} run", "replicas are full")
    else:
        yield ROUTER.warning(
            Check.QUEUE,
            f"{waiting} requests wait in the router, and only {running} run",
            "the fleet is overloaded: waiting is most of the time to the first token",
            "more replicas; or a shorter --max-queue-wait-s, so that clients are told early",
        )


def _redis(view: RouterView) -> Iterator[Finding]:
    redis = view.about.get("redis")
    if redis is None:
        yield ROUTER.note(Check.REDIS, "not used", "which is right for a single router; several need --redis")
    elif redis.get("state") == "up":
        lost = sum((redis.get("dropped") or {}).values())
        given_up = f"; {lost:,} pieces of news were given up since the start" if lost else ""
        yield ROUTER.ok(Check.REDIS, f"up{given_up}")
    else:
        state = str(redis.get("state"))
        yield ROUTER.warning(
            Check.REDIS,
            f"{state}: {redis.get('cause')}",
            "routers do not know of each other's turns",
            _ADVICE.get(state, "--redis"),
        )


def _routers(view: RouterView) -> Iterator[Finding]:
    routers = view.about.get("routers") or []
    if len(routers) > 1:
        yield ROUTER.ok(Check.ROUTERS, f"{len(routers)} routers know of each other")
    elif view.about.get("redis") is not None:
        yield ROUTER.note(
            Check.ROUTERS,
            "no other router on this Redis",
            "if there is to be one, it has another --redis, --redis-prefix or --redis-secret",
        )


def _replica(row: Row) -> Iterator[Finding]:
    say = Remarks(f"{row['id']} ({row['url']})")
    state, cause = row.get("state"), row.get("cause")
    if state == "ready":
        yield say.ok(Check.REPLICA_STATE, "ready")
    elif state == "draining":
        yield say.note(Check.REPLICA_STATE, f"draining, by the {row.get('drained_by')}", "nothing new is sent there")
    elif state == "ejected":
        yield say.problem(
            Check.REPLICA_STATE, f"ejected: {cause}", "only probes are sent there", "cure the cause; it comes back"
        )
    else:
        why = f"{cause}" if cause else "it has just come in"
        yield say.note(Check.REPLICA_STATE, f"{state}", why)


def check_reading(engine: Engine) -> list[Finding]:
    """Return what doctor can read of an engine, and the router can't."""
    say, rows = Remarks(engine.place.name), engine.place.rows
    if not rows or not engine.is_vllm or not engine.place.up:
        return []
    blind = [name for name, there in (("size", engine.kv_tokens), ("models", engine.models)) if there]
    missing = [name for name in blind if any(not _read_by_router(row, name) for row in rows)]
    if not missing:
        return [say.ok(Check.ROUTER_READS, "the router reads its metrics and models")]
    return [
        say.warning(
            Check.ROUTER_READS,
            f"the router does not know its {' and '.join(missing)}, which can be read from here",
            "it has to guess what is cached, or what is served",
            "let the router reach /metrics and /v1/models; WARMROUTE_ENGINE_API_KEY where engines want a key",
        )
    ]


def _read_by_router(row: Row, what: str) -> bool:
    return bool(row.get("models")) if what == "models" else bool((row.get("engine") or {}).get("kv_tokens"))
