"""The dashboard "Warmroute: fleet": replicas, load, errors, phases, the routers themselves, and Redis."""

from __future__ import annotations

from deploy.grafana.generate.board import Row, board
from deploy.grafana.generate.panels import BLUE, GREEN, RED, YELLOW, Json, Query, lines, stat, states
from deploy.grafana.generate.promql import MODEL, REPLICA, ROUTER, gauge, quantile, rate, ratio

REQUESTS = "warmroute_requests_total"
PHASES = "warmroute_phase_seconds"
WAIT = "warmroute_queue_wait_seconds"
OVERHEAD = "warmroute_overhead_seconds"
REDIS = "warmroute_redis_state"
EJECTED = f'{REPLICA}, state="ejected"'
PARTS = f'{ROUTER}, phase!="total"'

ALL_WELL = ((None, GREEN), (1, RED))
"""For what should be none."""
NEEDED = ((None, RED), (1, GREEN))
"""For what there has to be one of."""

HEALTH = (("ejected", RED), ("draining", YELLOW), ("suspect", YELLOW), ("joining", BLUE), ("ready", GREEN))
REDIS_STATES = (("down", RED), ("refusing", RED), ("slow", YELLOW), ("up", GREEN))


def fleet() -> Json:
    """Return the dashboard."""
    text = "Whether the replicas are well, how full they are, where requests spend their time, and how the routers are."
    rows = [_now(), _requests(), _replicas(), _engines(), _queue(), _phases(), _routers(), _sharing()]
    return board("warmroute-fleet", "Warmroute: fleet", text, rows)


def _present(metric: str, filters: str, by: str, order: tuple[tuple[str, str], ...]) -> str:
    """Return the place in `order` of the state that something is in; of several that routers see, the worst.

    Gauges are 1 for the present state and 0 for the others; a state alone is no number that a panel could show.
    """
    parts = [f'({place} * ({metric}{{{filters}, state="{name}"}} == 1))' for place, (name, _) in enumerate(order)]
    return f"min by ({by}) ({' or '.join(parts)})"


def _mapping(order: tuple[tuple[str, str], ...]) -> list[tuple[int, str, str]]:
    return [(place, name, colour) for place, (name, colour) in enumerate(order)]


def _now() -> Row:
    errors = ratio(
        f'(sum(rate({REQUESTS}{{{MODEL}, status=~"5.."}}[5m])) or vector(0))', rate(REQUESTS, MODEL, span="5m")
    )
    up = f"count({gauge('warmroute_replica_up', REPLICA, 'replica', 'max')} == 1) or vector(0)"
    ejected = f"sum({gauge('warmroute_replica_state', EJECTED, 'replica', 'max')})"
    return Row(
        "Now",
        [
            (3, stat("Routers", "That Prometheus reaches.", [Query(f"sum(up{{{ROUTER}}})")], "none", NEEDED)),
            (3, stat("Replicas up", "Joining, ready or suspect, as at least one router sees them.", [Query(up)], "none",
                     NEEDED)),
            (3, stat("Replicas ejected", "Out of use, as at least one router sees them.", [Query(ejected)], "none",
                     ALL_WELL)),
            (3, stat("Requests", "A second, last 5 min.", [Query(rate(REQUESTS, MODEL, span="5m"))], "reqps")),
            (3, stat("In flight now", "Requests.", [Query(gauge("warmroute_inflight_requests", REPLICA, ""))], "none")),
            (3, stat("Answered 5xx", "Share of all requests, last 5 min.", [Query(errors)], "percentunit",
                     ((None, GREEN), (0.001, YELLOW), (0.01, RED)))),
            (3, stat("Queued now", "Requests in the queues of the routers.",
                     [Query(gauge("warmroute_queued_requests", ROUTER, ""))], "none", ((None, GREEN), (10, YELLOW)))),
            (3, stat("Overhead, p99", "The routers' own time before a request is sent on, last 5 min.",
                     [Query(quantile(0.99, OVERHEAD, ROUTER, span="5m"))], "s",
                     ((None, GREEN), (0.002, YELLOW), (0.005, RED)))),
        ],
        height=4,
    )  # fmt: skip


def _requests() -> Row:
    failures = rate("warmroute_attempt_failures_total", REPLICA, "replica, kind")
    return Row(
        "Requests and errors",
        [
            (8, lines("Requests by status", "A second. 499: the client left before there was an answer.",
                      [Query(rate(REQUESTS, MODEL, "status"), "{{status}}")], "reqps", stacked=True)),
            (8, lines("Errors of the routers", "A second, by code; docs/reference/errors.md says what each one means.",
                      [Query(rate("warmroute_errors_total", ROUTER, "code"), "{{code}}")], "ops", stacked=True)),
            (8, lines("Failed attempts", "A second. Most are made good by another replica.",
                      [Query(failures, "{{replica}} {{kind}}")], "ops", stacked=True)),
            (8, lines("Requests by replica", "A second.", [Query(rate(REQUESTS, MODEL, "replica"), "{{replica}}")],
                      "reqps", stacked=True)),
            (8, lines("Requests by model", "A second.", [Query(rate(REQUESTS, MODEL, "model"), "{{model}}")], "reqps",
                      stacked=True)),
            (8, lines("Requests by client", "A second, by the name of the key. Only where keys are asked for.",
                      [Query(rate("warmroute_client_requests_total", ROUTER, "client"), "{{client}}")], "reqps",
                      stacked=True)),
        ],
    )  # fmt: skip


def _replicas() -> Row:
    state = _present("warmroute_replica_state", REPLICA, "replica", HEALTH)
    seconds = "max by (replica) (warmroute_ledger_tokens{%s} / warmroute_prefill_tokens_per_second{%s})"
    return Row(
        "Replicas, in the routers' books",
        [
            (24, states("State", "Where routers differ, the worst that one of them sees.",
                        [Query(state, "{{replica}}")], _mapping(HEALTH))),
            (12, lines("Pressure", "0 idle to 1 full. Above 0.8 on all replicas for minutes: the fleet is too small.",
                       [Query(gauge("warmroute_replica_pressure_ratio", REPLICA, "replica", "max"), "{{replica}}")],
                       "percentunit", top=1, steps=((None, GREEN), (0.8, RED)))),
            (12, lines("Prefill ahead", "Seconds of prefill that a router has sent and that are not done: its ledger "
                       "over the learnt rate.", [Query(seconds % (REPLICA, REPLICA), "{{replica}}")], "s")),
            (12, lines("In flight", "Requests, of all routers.",
                       [Query(gauge("warmroute_inflight_requests", REPLICA, "replica"), "{{replica}}")], "none",
                       stacked=True)),
            (12, lines("Learnt prefill rate", "Tokens a second. One that is far below the others is slow.",
                       [Query(gauge("warmroute_prefill_tokens_per_second", REPLICA, "replica", "avg"), "{{replica}}")],
                       "short")),
        ],
    )  # fmt: skip


def _engines() -> Row:
    def said(metric: str) -> list[Query]:
        return [Query(gauge(f"warmroute_engine_{metric}", REPLICA, "replica", "max"), "{{replica}}")]

    preempted = f"max by (replica) (increase(warmroute_engine_preemptions{{{REPLICA}}}[$__rate_interval]))"
    return Row(
        "What the engines say",
        [
            (6, lines("Running", "Requests.", said("running_requests"), "none")),
            (6, lines("Waiting", "Requests.", said("waiting_requests"), "none")),
            (6, lines("KV cache in use", "Blocks of live requests over all. It is load, not what would be lost.",
                      said("kv_usage_ratio"), "percentunit", top=1)),
            (6, lines("Preemptions", "Within a sampling interval. Any at all: more runs than the KV cache can hold.",
                      [Query(preempted, "{{replica}}")], "none")),
        ],
    )  # fmt: skip


def _queue() -> Row:
    waits = [
        Query(quantile(share, WAIT, ROUTER, "priority"), f"{{{{priority}}}} {name}")
        for share, name in ((0.5, "p50"), (0.95, "p95"))
    ]
    share = f"{rate(WAIT + '_count', ROUTER, 'priority')} / on () group_left () ({rate(REQUESTS, ROUTER)} > 0)"
    return Row(
        "The queue",
        [
            (8, lines("Waiting requests", "Now and then: bursts are put in order. All the time: the fleet is full.",
                      [Query(gauge("warmroute_queued_requests", ROUTER, "priority"), "{{priority}}")], "none",
                      stacked=True)),
            (8, lines("Wait", "Of requests that had to wait.", waits, "s")),
            (8, lines("Share that has to wait", "Of all requests.", [Query(share, "{{priority}}")], "percentunit")),
        ],
    )  # fmt: skip


def _phases() -> Row:
    mean = f"{rate(PHASES + '_sum', PARTS, 'phase')} / ({rate(PHASES + '_count', PARTS, 'phase')} > 0)"
    total = f'{ROUTER}, phase="total"'
    return Row(
        "Where the time goes",
        [
            (12, lines("Mean time by phase", "Prefill and decode of streams only.", [Query(mean, "{{phase}}")], "s",
                       stacked=True)),
            (12, lines("Time by phase (p95)", "docs/reference/metrics.md says from where to where each one goes.",
                       [Query(quantile(0.95, PHASES, PARTS, "phase"), "{{phase}}")], "s")),
            (12, lines("Prefill, warm and cold (p95)", "To the first byte of content, the engine's own queue included.",
                       [Query(quantile(0.95, PHASES, f'{ROUTER}, phase="prefill"', "cache"), "{{cache}}")], "s")),
            (12, lines("Total by priority (p95)", "From the whole request to the end of its answer.",
                       [Query(quantile(0.95, PHASES, total, "priority"), "{{priority}}")], "s")),
        ],
    )  # fmt: skip


def _routers() -> Row:
    overhead = [
        Query(quantile(share, OVERHEAD, ROUTER, "instance"), f"{{{{instance}}}} {name}")
        for share, name in ((0.5, "p50"), (0.99, "p99"))
    ]
    cpu = f"rate(process_cpu_seconds_total{{{ROUTER}}}[$__rate_interval])"
    memory = [
        Query(f"process_resident_memory_bytes{{{ROUTER}}}", "{{instance}} process"),
        Query(gauge("warmroute_index_bytes", ROUTER, "instance"), "{{instance}} index"),
    ]
    return Row(
        "Routers",
        [
            (8, lines("Overhead", "The router's own time from the whole request to its dispatch.", overhead, "s",
                      steps=((None, GREEN), (0.005, RED)))),
            (8, lines("CPU of the routers", "Of one core each; a router is one process on one core.",
                      [Query(cpu, "{{instance}}")], "percentunit", steps=((None, GREEN), (0.8, RED)))),
            (8, lines("Memory", "The process, and within it the index of prompts and sessions.", memory, "bytes")),
        ],
    )  # fmt: skip


def _sharing() -> Row:
    state = _present(REDIS, ROUTER, "instance", REDIS_STATES)
    reads = rate("warmroute_redis_reads_total", ROUTER, "result")
    times = [Query(quantile(0.99, f"warmroute_redis_{what}_seconds", ROUTER), what) for what in ("read", "write")]
    backlog = [
        Query(gauge("warmroute_redis_backlog", ROUTER, "instance"), "{{instance}} waiting"),
        Query(rate("warmroute_redis_dropped_total", ROUTER, "what"), "{{what}} dropped a second"),
    ]
    return Row(
        "Sharing through Redis",
        [
            (8, states("Redis", "As each router sees it.", [Query(state, "{{instance}}")], _mapping(REDIS_STATES))),
            (8, lines("Known routers", "Itself included. Fewer than there are: they do not share.",
                      [Query(gauge("warmroute_known_routers", ROUTER, "instance"), "{{instance}}")], "none")),
            (8, lines("Where what is known came from", "Requests a second: own books, Redis, or new.",
                      [Query(rate("warmroute_recalls_total", ROUTER, "source"), "{{source}}")], "ops", stacked=True)),
            (8, lines("Questions to Redis", "A second, by result.", [Query(reads, "{{result}}")], "ops", stacked=True)),
            (8, lines("Time of Redis (p99)", "Reads above `--redis-deadline-ms` are late and count for nothing.", times,
                      "s")),
            (8, lines("Not told", "News and turn ends that wait or were given up.", backlog, "none")),
        ],
    )  # fmt: skip
