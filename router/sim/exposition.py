"""The text of /metrics: vLLM 0.32's names, labels, order and size, with this replica's numbers."""

from __future__ import annotations

import gc
import resource
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from router.sim.engine import Engine
from router.sim.meters import Histogram, HttpMeters, RequestMeters

CONTENT_TYPE = b"text/plain; version=1.0.0; charset=utf-8"
GARBAGE = b'<html>\x00\xff upstream connect error</html>\nvllm:kv_cache_usage_perc{engine="0"} NaN NaN\n{}} 1\n'
_SLEEP_STATES = ("awake", "weights_offloaded", "discard_all")

_CACHE_CONFIG = {
    "_block_size_resolved": "True", "cache_dtype": "auto", "cache_hit_alignment_tokens": "None",
    "enable_mamba_shared_prefix_checkpoint": "False",
    "gpu_memory_utilization": "0.92", "hash_block_size": "None", "is_attention_free": "False",
    "kv_cache_dtype_skip_layers": "[]", "kv_cache_layout": "None", "kv_cache_memory_bytes": "None",
    "kv_offloading_backend": "native", "kv_offloading_size": "None", "kv_sharing_fast_prefill": "False",
    "mamba_block_size": "None", "mamba_cache_dtype": "auto", "mamba_cache_mode": "none",
    "mamba_page_size_padded": "None", "mamba_ssm_cache_dtype": "float32", "num_cpu_blocks": "None",
    "num_gpu_blocks_override": "None", "prefix_cache_retention_interval": "0", "prefix_caching_hash_algo": "sha256",
    "prefix_match_unit": "None", "replayssm_buffer_len": "16", "skip_page_size_padded": "None",
    "sliding_window": "None", "swa_bounded_replay": "True", "use_kda_recoverssm": "False", "use_replayssm": "False",
    "user_specified_block_size": "True",
}  # fmt: skip
"""Labels of cache_config_info that do not depend on the engine's size."""

_INFINITE = {"inf": "+Inf", "-inf": "-Inf"}

Labels = dict[str, str]
Sample = tuple[Labels, float]


class EngineReading(NamedTuple):
    """One engine, and the histograms of its requests."""

    engine: Engine
    requests: RequestMeters


@dataclass(frozen=True, slots=True)
class Reading:
    """All that the exposition tells."""

    model: str
    engines: Sequence[EngineReading]
    """By data-parallel rank."""
    http: HttpMeters
    start_time_s: float
    """Unix time of the process's start; that of all `_created` gauges too."""
    cpu_s: float
    max_model_len: int
    sleep_state: str = "awake"
    old_names: bool = False

    def each(self) -> Iterator[tuple[Labels, EngineReading]]:
        """Give the engines with the labels that tell them apart."""
        for rank, engine in enumerate(self.engines):
            yield {"engine": str(rank), "model_name": self.model}, engine

    def samples(self, value_of: Callable[[Engine], float]) -> list[Sample]:
        """Return one sample for each engine."""
        return [(labels, value_of(read.engine)) for labels, read in self.each()]

    def split(self, label: str, values_of: Callable[[Engine], Mapping[str, float]]) -> list[Sample]:
        """Return samples for each engine that one more label tells apart."""
        return [
            (dict(sorted((labels | {label: key}).items())), value)
            for labels, read in self.each()
            for key, value in values_of(read.engine).items()
        ]


def exposition(reading: Reading) -> bytes:
    """Return the whole text."""
    parts = (_process(reading), _gauges(reading), _counters(reading), _histograms(reading), _http(reading))
    return "".join(line for part in parts for line in part).encode()


def _process(reading: Reading) -> Iterator[str]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    stats = gc.get_stats()
    for name in ("collected", "uncollectable", "collections"):
        samples = [({"generation": str(age)}, float(stat[name])) for age, stat in enumerate(stats)]
        full = "python_gc_collections" if name == "collections" else f"python_gc_objects_{name}"
        yield from _family(f"{full}_total", "counter", "Garbage collector.", samples)
    major, minor, patch = (str(part) for part in sys.version_info[:3])
    version = {
        "implementation": "CPython", "major": major, "minor": minor, "patchlevel": patch,
        "version": f"{major}.{minor}.{patch}",
    }  # fmt: skip
    yield from _family("python_info", "gauge", "Python platform information", [(version, 1.0)])
    resident = usage.ru_maxrss * 1024.0
    yield from _plain("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", resident * 2)
    yield from _plain("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.", resident)
    yield from _plain("process_start_time_seconds", "gauge", "Start of the process, Unix time.", reading.start_time_s)
    yield from _plain("process_cpu_seconds_total", "counter", "User and system CPU time spent.", reading.cpu_s)
    yield from _plain("process_open_fds", "gauge", "Number of open file descriptors.", 34.0)
    yield from _plain("process_max_fds", "gauge", "Maximum number of open file descriptors.", 20_000.0)


def _gauges(reading: Reading) -> Iterator[str]:
    for unit in ("estimated_flops", "estimated_read_bytes", "estimated_write_bytes"):
        nothing = reading.samples(lambda _: 0.0)
        yield from _counter(reading, f"{unit}_per_gpu", "Estimate for model utilisation, one GPU.", nothing)
    usage_name = "gpu_cache_usage_perc" if reading.old_names else "kv_cache_usage_perc"
    states = {state: float(state == reading.sleep_state) for state in _SLEEP_STATES}
    for name, text, samples in (
        ("num_requests_running", "Requests in execution batches.", reading.samples(lambda one: float(one.running))),
        ("num_requests_waiting", "Requests waiting to be processed.", reading.samples(lambda one: float(one.waiting))),
        ("num_requests_waiting_by_reason", "Waiting requests by reason.", reading.split("reason", _waiting)),
        ("engine_sleep_state", "Awake, or the level of sleep.", reading.split("sleep_state", lambda _: states)),
        (usage_name, "KV cache usage; 1 is full.", reading.samples(lambda one: one.kv_usage_ratio)),
    ):
        yield from _vllm(name, "gauge", text, samples)


def _waiting(engine: Engine) -> Mapping[str, float]:
    return {"capacity": float(engine.waiting), "deferred": 0.0}


def _counters(reading: Reading) -> Iterator[str]:
    prefix = "gpu_prefix_cache" if reading.old_names else "prefix_cache"
    values: tuple[tuple[str, str, Callable[[Engine], float]], ...] = (
        (f"{prefix}_queries", "Prefix cache queries, in tokens.", lambda one: one.stats.prefix_queries_tokens),
        (f"{prefix}_hits", "Prefix cache hits, in tokens.", lambda one: one.stats.prefix_hits_tokens),
        ("external_prefix_cache_queries", "Queries of a KV connector's cache, in tokens.", lambda _: 0.0),
        ("external_prefix_cache_hits", "Hits of a KV connector's cache, in tokens.", lambda _: 0.0),
        ("mm_cache_queries", "Multi-modal cache queries, in items.", lambda _: 0.0),
        ("mm_cache_hits", "Multi-modal cache hits, in items.", lambda _: 0.0),
        ("num_preemptions", "Preemptions by the scheduler.", lambda one: one.stats.preemptions),
        ("prompt_tokens", "Prefill tokens processed.", lambda one: one.stats.prompt_tokens),
    )
    for name, text, value_of in values:
        yield from _counter(reading, name, text, reading.samples(value_of))
    for name, text, samples in (
        ("prompt_tokens_by_source", "Prompt tokens by source.", reading.split("source", _sources)),
        ("prompt_tokens_cached", "Cached prompt tokens.", reading.samples(lambda one: one.stats.prefix_hits_tokens)),
        ("prompt_tokens_cached_by_source", "Cached prompt tokens by tier.", reading.split("source", _tiers)),
        ("generation_tokens", "Tokens generated.", reading.samples(lambda one: one.stats.generation_tokens)),
        ("request_success", "Finished requests by reason.", reading.split("finished_reason", _finished)),
        ("admission_rejections", "Requests refused by a queue limit.", _rejections(reading)),
    ):
        yield from _counter(reading, name, text, samples)


def _sources(engine: Engine) -> Mapping[str, float]:
    stats = engine.stats
    computed = max(0.0, stats.prompt_tokens - stats.prefix_hits_tokens)
    return {"local_compute": computed, "local_cache_hit": stats.prefix_hits_tokens, "external_kv_transfer": 0.0}


def _tiers(engine: Engine) -> Mapping[str, float]:
    others = dict.fromkeys(("host", "p2p", "disk", "external_unspecified"), 0.0)
    return {"device": float(engine.stats.prefix_hits_tokens)} | others


def _finished(engine: Engine) -> Mapping[str, float]:
    return dict.fromkeys(("stop", "length", "abort", "error", "repetition"), 0.0) | engine.stats.finished


def _rejections(reading: Reading) -> list[Sample]:
    """Return the counts of vLLM's HTTP server: for all engines together."""
    model = {"model_name": reading.model}
    rejected = float(sum(read.engine.stats.rejected for read in reading.engines))
    return [
        (model | {"reason": "max_num_queued_reqs"}, rejected),
        (model | {"reason": "max_num_queued_tokens"}, 0.0),
    ]


def _histograms(reading: Reading) -> Iterator[str]:
    for name in reading.engines[0].requests.histograms:
        text = f"Histogram of {name.replace('_', ' ')}, one observation a request, step or token."
        rows = [(labels, read.requests.histograms[name]) for labels, read in reading.each()]
        yield from _buckets(f"vllm:{name}", text, rows, reading.start_time_s)
    caches = [(_cache(reading, read.engine, labels["engine"]), 1.0) for labels, read in reading.each()]
    yield from _vllm("cache_config_info", "gauge", "Information of the cache configuration", caches)


def _cache(reading: Reading, engine: Engine, rank: str) -> Labels:
    config = engine.config
    blocks = str(config.block_tokens)
    sized = {
        "block_size": blocks,
        "effective_attention_block_size": blocks,
        "enable_prefix_caching": str(config.prefix_caching),
        "engine": rank,
        "kv_cache_max_concurrency": f"{config.kv_tokens / reading.max_model_len:.2f}",
        "kv_cache_size_tokens": str(config.num_blocks * config.block_tokens),
        "num_gpu_blocks": str(config.num_blocks),
    }
    return dict(sorted((_CACHE_CONFIG | sized).items()))


def _http(reading: Reading) -> Iterator[str]:
    http, start_s = reading.http, reading.start_time_s
    requests = [
        ({"handler": handler, "method": method, "status": status}, float(count))
        for (handler, method, status), count in http.requests.items()
    ]
    yield from _family("http_requests_total", "counter", "Requests by method, status and handler.", requests)
    yield from _created("http_requests", requests, start_s)
    for name, sums in (("request", http.request_bytes), ("response", http.response_bytes)):
        full = f"http_{name}_size_bytes"
        yield from _header(full, "summary", f"Content length of {name}s by handler.")
        for handler, known in sums.items():
            yield _line(f"{full}_count", {"handler": handler}, known.count)
            yield _line(f"{full}_sum", {"handler": handler}, known.total)
        yield from _created(full, [({"handler": handler}, 0.0) for handler in sums], start_s)
    fine: list[tuple[Labels, Histogram]] = [({}, http.fine)]
    yield from _buckets("http_request_duration_highr_seconds", "Latency, many buckets.", fine, start_s)
    coarse = [({"handler": handler, "method": method}, known) for (handler, method), known in http.coarse.items()]
    yield from _buckets("http_request_duration_seconds", "Latency by handler, few buckets.", coarse, start_s)


def _counter(reading: Reading, name: str, text: str, samples: list[Sample]) -> Iterator[str]:
    yield from _vllm(f"{name}_total", "counter", text, samples)
    yield from _created(f"vllm:{name}", samples, reading.start_time_s)


def _vllm(name: str, kind: str, text: str, samples: Iterable[Sample]) -> Iterator[str]:
    return _family(f"vllm:{name}", kind, text, samples)


def _plain(name: str, kind: str, text: str, value: float) -> Iterator[str]:
    return _family(name, kind, text, [({}, value)])


def _family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield from _header(name, kind, text)
    for labels, value in samples:
        yield _line(name, labels, value)


def _created(name: str, samples: Iterable[tuple[Labels, Any]], start_s: float) -> Iterator[str]:
    return _family(f"{name}_created", "gauge", "When it was created.", [(labels, start_s) for labels, _ in samples])


def _buckets(name: str, text: str, rows: list[tuple[Labels, Histogram]], start_s: float) -> Iterator[str]:
    yield from _header(name, "histogram", text)
    for labels, histogram in rows:
        count = 0
        for bound, more in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
            count += more
            yield _line(f"{name}_bucket", _with_le(labels, bound), count)
        yield _line(f"{name}_count", labels, count)
        yield _line(f"{name}_sum", labels, histogram.total)
    yield from _created(name, rows, start_s)


def _with_le(labels: Labels, bound: float) -> Labels:
    return dict(sorted((labels | {"le": number(bound)}).items()))


def _header(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _line(name: str, labels: Labels, value: float) -> str:
    if not labels:
        return f"{name} {number(value)}\n"
    inner = ",".join(f'{key}="{_quoted(known)}"' for key, known in labels.items())
    return f"{name}{{{inner}}} {number(value)}\n"


def number(value: float) -> str:
    """Return a number as Prometheus' client library for Python writes it."""
    text = repr(float(value))
    whole, dot, _ = text.partition(".")
    if text in _INFINITE:
        return _INFINITE[text]
    if not dot or "e" in text or value <= 0 or len(whole) <= 6:
        return text
    mantissa = f"{whole[0]}.{text[1:].replace('.', '')}".rstrip("0.")
    return f"{mantissa}e+{len(whole) - 1:02d}"


def _quoted(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
