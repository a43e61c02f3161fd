"""What is said of one engine. Pure: an `Engine` in, findings out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from router.app.doctor.engines import Engine
from router.app.doctor.findings import Check, Finding, Remarks
from router.app.doctor.page import EXTERNAL_HITS, EXTERNAL_QUERIES, FETCHES, IDLE
from router.app.doctor.releases import lacks, too_old

FEW_CONVERSATIONS = 2.0
"""Below it, one conversation of full length pushes out the one before."""

SHORT_STAY_S = 60.0
"""Half of all chat users take longer than this for their next message: 126 s in the traces that policies were compared
on. What is evicted sooner is mostly lost."""

_Rule = Callable[[Remarks, Engine], Iterator[Finding]]


def check_engine(engine: Engine) -> list[Finding]:
    """Return all that is to be said of an engine."""
    remarks = Remarks(engine.place.name)
    gate = [*_reachable(remarks, engine), *_identity(remarks, engine)]
    rules = _RULES if engine.is_vllm else ()
    return gate + [finding for rule in rules for finding in rule(remarks, engine)]


def _reachable(say: Remarks, engine: Engine) -> Iterator[Finding]:
    if engine.reachable and engine.health.status in (0, *range(500, 600)):
        yield say.problem(
            Check.REACHABLE, f"/health: {engine.health.outcome}", "its engine is dead or held up", "look at its log"
        )
    elif engine.reachable:
        yield say.ok(Check.REACHABLE, "answers")
    elif engine.place.up:
        yield say.warning(
            Check.REACHABLE,
            f"can't be reached from here: {engine.health.outcome}",
            "the router does reach it, so nothing of it could be checked",
            "run doctor on the router's machine",
        )
    else:
        yield say.problem(
            Check.REACHABLE,
            f"can't be reached: {engine.health.outcome}",
            "no request can go there",
            "start it, or take its address from the router's list",
        )


def _identity(say: Remarks, engine: Engine) -> Iterator[Finding]:
    if not engine.reachable:
        return
    if engine.is_router:
        yield say.problem(
            Check.IS_VLLM,
            "a Warmroute answers there, not a vLLM",
            "two routers in a row each place the turn, and the first can't see any engine's cache",
            "give this router that one's replicas: --replica for each engine",
        )
    elif engine.page is None:
        yield say.problem(
            Check.IS_VLLM,
            f"/metrics: {_unreadable(engine)}",
            "cache size, load and restarts stay unknown",
            "name the vLLM's own address, and let the router reach /metrics there",
        )
    elif engine.is_vllm:
        yield say.ok(Check.IS_VLLM, "a vLLM")
    elif engine.version is not None:
        yield say.problem(
            Check.IS_VLLM,
            "its /metrics says nothing of vLLM",
            "cache size, load and restarts stay unknown",
            "start vLLM without --disable-log-stats",
        )
    else:
        yield say.problem(Check.IS_VLLM, "no vLLM answers there", "it is something else's address", "correct --replica")


def _unreadable(engine: Engine) -> str:
    return "can't be read as metrics" if engine.metrics.ok else engine.metrics.outcome


def _one_engine(say: Remarks, engine: Engine) -> Iterator[Finding]:
    if len(engine.identities) > 1:
        yield say.problem(
            Check.ONE_ENGINE,
            f"{len(engine.identities)} engines answer behind this one address",
            "a turn may reach the one that does not hold its history, and the router can't tell",
            "name each engine: --replica for each, or --discover kubernetes: in place of a Service's address",
        )


def _version(say: Remarks, engine: Engine) -> Iterator[Finding]:
    missing = lacks(engine.version)
    if engine.version is None:
        yield say.note(Check.VERSION, "does not say its version (/version)")
    elif too_old(engine.version):
        yield say.warning(Check.VERSION, f"vLLM {engine.version}", f"lacks {'; '.join(missing)}", "vLLM 0.27 or later")
    elif missing:
        yield say.note(Check.VERSION, f"vLLM {engine.version}", f"lacks {'; '.join(missing)}")
    else:
        yield say.ok(Check.VERSION, f"vLLM {engine.version}")


def _awake(say: Remarks, engine: Engine) -> Iterator[Finding]:
    if engine.asleep:
        yield say.warning(
            Check.AWAKE,
            "sleeps or is paused",
            "it gets no requests, and its cache is empty",
            "POST /wake_up or /resume",
        )


def _models(say: Remarks, engine: Engine) -> Iterator[Finding]:
    if engine.listing.status in (401, 403):
        yield say.warning(
            Check.MODELS,
            f"/v1/models: {engine.listing.status}",
            "it was started with --api-key",
            "WARMROUTE_ENGINE_API_KEY, here and for the router",
        )
    elif not engine.models:
        yield say.warning(
            Check.MODELS,
            f"lists no model (/v1/models: {engine.listing.outcome})",
            "the router can't tell what it serves",
            "let /v1/models through",
        )
    else:
        yield say.ok(Check.MODELS, f"serves {', '.join(card.name for card in engine.models)}")


def _prefix_caching(say: Remarks, engine: Engine) -> Iterator[Finding]:
    if engine.prefix_caching is None:
        yield say.note(Check.PREFIX_CACHING, "does not say whether prefix caching is on")
    elif engine.prefix_caching:
        yield say.ok(Check.PREFIX_CACHING, "on")
    else:
        yield say.problem(
            Check.PREFIX_CACHING,
            "prefix caching is off",
            "every turn computes its whole history, wherever it goes",
            "start vLLM without --no-enable-prefix-caching",
        )


def _capacity(say: Remarks, engine: Engine) -> Iterator[Finding]:
    tokens, block, longest = engine.kv_tokens, engine.block_tokens, engine.max_model_len
    if tokens is None or block is None:
        yield say.note(Check.CAPACITY, "does not say how large its KV cache is")
    elif longest is None:
        yield say.ok(Check.CAPACITY, f"{tokens:,} tokens in blocks of {block}")
    elif tokens / longest < FEW_CONVERSATIONS:
        yield say.warning(
            Check.CAPACITY,
            f"{tokens:,} tokens in blocks of {block}: {tokens / longest:.1f} conversations of {longest:,}",
            "two long conversations push each other out",
            "a higher --gpu-memory-utilization, a shorter --max-model-len, --kv-cache-dtype fp8 or "
            "--kv-offloading-size",
        )
    else:
        fits = f"{tokens / longest:.1f} conversations of {longest:,}"
        yield say.ok(Check.CAPACITY, f"{tokens:,} tokens in blocks of {block}: {fits}")


def _ranks(say: Remarks, engine: Engine) -> Iterator[Finding]:
    assert engine.page is not None
    known, real = len(engine.place.rows), engine.page.ranks
    if known and real > known:
        yield say.problem(
            Check.RANKS,
            f"{real} data-parallel ranks, of which the router knows {known}",
            "each rank has a cache of its own, and vLLM spreads turns over them",
            f"--replica {engine.place.url}?ranks={real}",
        )
    elif known > real:
        yield say.problem(
            Check.RANKS,
            f"{real} data-parallel ranks, and the router believes in {known}",
            "requests for a rank that is not there are refused",
            f"--replica {engine.place.url}" + (f"?ranks={real}" if real > 1 else ""),
        )
    elif real > 1:
        yield say.ok(Check.RANKS, f"{real} data-parallel ranks")


def _offload(say: Remarks, engine: Engine) -> Iterator[Finding]:
    assert engine.page is not None
    size = engine.page.cache.get("kv_offloading_size", "None")
    queries, hits = engine.page.total(*EXTERNAL_QUERIES) or 0.0, engine.page.total(*EXTERNAL_HITS) or 0.0
    sized = "" if size == "None" else f" of {size} GiB"
    if queries:
        yield say.ok(
            Check.OFFLOAD,
            f"offload{sized} is on: {hits:,.0f} of {queries:,.0f} tokens that were not local came from it",
        )
    elif sized or engine.page.samples(FETCHES):
        yield say.ok(Check.OFFLOAD, f"offload{sized} is on, and has not been asked for anything yet")
    else:
        yield say.note(
            Check.OFFLOAD,
            "no KV offload: all hits are local",
            "what is evicted is computed again",
            "--kv-offloading-size GIB keeps it in host memory",
        )


def _kv_metrics(say: Remarks, engine: Engine) -> Iterator[Finding]:
    assert engine.page is not None
    stay_s = engine.page.median(IDLE)
    if not engine.page.samples(f"{IDLE}_bucket"):
        yield say.note(
            Check.KV_METRICS,
            "does not say how long what is unused stays cached",
            "whether users come back in time can't be told",
            "--kv-cache-metrics",
        )
    elif stay_s is None:
        yield say.ok(Check.KV_METRICS, "on; nothing has been evicted yet")
    elif stay_s < SHORT_STAY_S:
        yield say.warning(
            Check.KV_METRICS,
            f"half of what it evicts was unused for less than {stay_s:.3g} s",
            "most users take longer for their next turn",
            "a larger KV cache, --kv-offloading-size, or more replicas",
        )
    else:
        yield say.ok(Check.KV_METRICS, f"half of what it evicts was unused for {stay_s:,.0f} s or more")


def _kv_events(say: Remarks, engine: Engine) -> Iterator[Finding]:
    sources = engine.event_sources
    if sources is None:
        yield say.note(Check.KV_EVENTS, "does not say whether it publishes KV events")
    else:
        yield say.ok(Check.KV_EVENTS, f"{'published' if sources else 'off'}; Warmroute needs none")


def _shutdown(say: Remarks, engine: Engine) -> Iterator[Finding]:
    config = (engine.server_info or {}).get("vllm_config")
    limit_s = config.get("shutdown_timeout") if isinstance(config, dict) else None
    if not isinstance(limit_s, int | float):
        yield say.note(
            Check.SHUTDOWN_TIMEOUT,
            "can't be seen from outside",
            "by default a stop leaves open streams silent",
            "start vLLM with --shutdown-timeout 60, and give it as long to stop",
        )
    elif limit_s:
        yield say.ok(Check.SHUTDOWN_TIMEOUT, f"{limit_s:g} s")
    else:
        yield say.warning(
            Check.SHUTDOWN_TIMEOUT,
            "none",
            "when it is stopped, open streams stay open and silent until the router ends them",
            "--shutdown-timeout 60, and give it as long to stop",
        )


def _dev_mode(say: Remarks, engine: Engine) -> Iterator[Finding]:
    if engine.server_info is not None:
        yield say.note(
            Check.DEV_MODE,
            "development mode is on",
            "whoever reaches its port can empty its cache and put it to sleep",
            "keep clients from that port, or leave VLLM_SERVER_DEV_MODE off",
        )


_RULES: tuple[_Rule, ...] = (
    _one_engine,
    _version,
    _awake,
    _models,
    _prefix_caching,
    _capacity,
    _ranks,
    _offload,
    _kv_metrics,
    _kv_events,
    _shutdown,
    _dev_mode,
)
