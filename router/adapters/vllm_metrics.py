"""Asks one vLLM over HTTP: whether it answers, /metrics as an `EngineReport`, /v1/models as it is."""

from __future__ import annotations

import asyncio
import math
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx

from router.core.types import EngineReport
from router.ports import own_fault

NAMES = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:kv_cache_usage_perc": "kv_usage",
    "vllm:gpu_cache_usage_perc": "kv_usage",
    "vllm:prefix_cache_queries_total": "queries",
    "vllm:prefix_cache_hits_total": "hits",
    "vllm:gpu_prefix_cache_queries_total": "queries",
    "vllm:gpu_prefix_cache_hits_total": "hits",
    "vllm:external_prefix_cache_queries_total": "external_queries",
    "vllm:external_prefix_cache_hits_total": "external_hits",
    "vllm:num_preemptions_total": "preemptions",
    "vllm:cache_config_info": "config",
    "vllm:engine_sleep_state": "sleep",
    "process_start_time_seconds": "start_time",
}
"""Metric names of vLLM since 0.6 -> what they are here; the gpu_ names are those of releases before 0.11."""

_WANTED = tuple(NAMES)

_LINE = re.compile(r'([\w:]+)(?:\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\})? ([0-9.eE+-]+)(?: -?[0-9]+)?')
"""A line: name, labels, value, and a time that nobody needs. `prometheus_client` reads one in 0.2 ms, which for 16
data-parallel ranks holds every stream up for 30 ms."""

_LABELS = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

MAX_METRICS_BYTES = 4 << 20
"""A real exposition has 50 to 70 kB, with 16 data-parallel ranks under 1 MB."""

_UNPACKED = {"accept-encoding": "identity"}
"""Packing 60 kB costs both sides more than sending them does."""

HEALTH_S = 2.0
"""How long a health check may take. vLLM answers it within milliseconds; its HTTP server can be held up for a second by
one prompt of a megabyte."""

READING_S = 5.0
"""How long a page, or a one-token completion, may take: as long as most Prometheus set-ups wait."""

_ONE_TOKEN = {"prompt": "Is anyone there? One word is enough.", "max_tokens": 1, "stream": False}
"""Not shorter: a vLLM 0.32 on a CPU has died of a first prompt of one token."""

Sample = tuple[dict[str, str], float]


def parse_ranks(text: str, ranks: Sequence[int | None]) -> list[EngineReport | None]:
    """Read an exposition for each of some data-parallel ranks: rank None is the whole engine.

    Rank r is the r-th of the page's `engine` labels in ascending order: where vLLM balances within one node of several,
    that node's labels begin above 0, while requests number its ranks from 0. Lines without the label belong to all.
    None: the page has the label, and not for so many ranks.
    """
    samples = _samples(text)
    labels = sorted({label for found in samples.values() for sample in found if (label := _rank(sample)) >= 0})
    return [_of_rank(samples, labels, rank) for rank in ranks]


def _of_rank(samples: dict[str, list[Sample]], labels: Sequence[int], rank: int | None) -> EngineReport | None:
    if rank is None or not labels:
        return _report(samples)
    if rank >= len(labels):
        return None
    wanted = (-1, labels[rank])
    own = {name: [sample for sample in found if _rank(sample) in wanted] for name, found in samples.items()}
    return _report(defaultdict(list, own))


def _rank(sample: Sample) -> int:
    """Return the rank that a sample is of, -1 for one that is of all."""
    label = sample[0].get("engine", "")
    return int(label) if label.isdecimal() and len(label) < 10 else -1


def _report(samples: dict[str, list[Sample]]) -> EngineReport:
    values = {name: [value for _, value in found if math.isfinite(value)] for name, found in samples.items()}
    kv_tokens, block_tokens = _cache_size(samples["config"])
    usage = _checked(values.get("kv_usage"), max)
    return EngineReport(
        running=_whole(_checked(values.get("running"), sum)),
        waiting=_whole(_checked(values.get("waiting"), sum)),
        kv_usage_ratio=usage if usage is not None and usage <= 1.0 else None,
        kv_tokens=kv_tokens,
        block_tokens=block_tokens,
        prefix_queries_tokens=_checked(values.get("queries"), sum),
        prefix_hits_tokens=_checked(values.get("hits"), sum),
        preemptions=_checked(values.get("preemptions"), sum),
        start_time_s=_checked(values.get("start_time"), max),
        asleep=_asleep(samples["sleep"]),
        external_queries_tokens=_checked(values.get("external_queries"), sum),
        external_hits_tokens=_checked(values.get("external_hits"), sum),
    )


def _samples(text: str) -> dict[str, list[Sample]]:
    """Return the samples by our names. Where a page has a metric under two names, those of the first in `NAMES`."""
    by_name: dict[str, list[Sample]] = defaultdict(list)
    for line in text.split("\n")[:-1]:  # one without its end may lack digits
        if line.startswith(_WANTED):
            found = _LINE.fullmatch(line)
            value = None if found is None else _number(found[3])
            if found is not None and value is not None:  # one garbled line says nothing of the others
                by_name[found[1]].append((dict(_LABELS.findall(found[2] or "")), value))
    samples: dict[str, list[Sample]] = defaultdict(list)
    for name, ours in reversed(NAMES.items()):
        if name in by_name:
            samples[ours] = by_name[name]
    return samples


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _checked(values: list[float] | None, reduce: Callable[[list[float]], float]) -> float | None:
    return None if not values or min(values) < 0 else float(reduce(values))


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _cache_size(samples: list[Sample]) -> tuple[int | None, int | None]:
    """Return capacity and block size in tokens; the caches of data-parallel ranks count together."""
    total: int | None = None
    block: int | None = None
    for labels, _ in samples:
        block = _label(labels, "block_size") or block
        tokens = _label(labels, "kv_cache_size_tokens")
        if tokens is None and block is not None:
            blocks = _label(labels, "num_gpu_blocks")
            tokens = None if blocks is None else blocks * block
        if tokens is not None:
            total = (total or 0) + tokens
    return total, block


def _label(labels: dict[str, str], name: str) -> int | None:
    value = labels.get(name, "")
    return int(value) if value.isdecimal() and int(value) > 0 else None


def _asleep(samples: list[Sample]) -> bool | None:
    awake = [value for labels, value in samples if labels.get("sleep_state") == "awake"]
    return None if not awake else min(awake) == 0.0


class VllmProbe:
    """Asks one vLLM with an httpx client that belongs to the caller. Every method raises as `ports.EngineProbe`."""

    def __init__(self, client: httpx.AsyncClient, base_url: str) -> None:
        """`base_url`: scheme, host and port."""
        self._client = client
        self._base_url = base_url

    async def health(self) -> None:
        """Ask /health. 404 is an answer too: not every engine has the route."""
        async with self._answer("GET", "/health", HEALTH_S) as response:
            if response.status_code >= 500:
                raise OSError(f"/health answers {response.status_code}")

    async def reports(self, ranks: Sequence[int | None]) -> list[EngineReport | None]:
        """Read /metrics once, for each of some ranks (see `parse_ranks`)."""
        return parse_ranks(await self._get("/metrics"), ranks)

    async def models(self) -> list[dict[str, object]]:
        """Read /v1/models."""
        try:
            listed = httpx.Response(200, text=await self._get("/v1/models")).json()["data"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise OSError("the model list is not in OpenAI's form") from error
        if not isinstance(listed, list):
            raise OSError("the model list is not in OpenAI's form")
        return [model for model in listed if isinstance(model, dict) and isinstance(model.get("id"), str)]

    async def paused(self) -> bool | None:
        """Ask /is_paused, which exists in development mode only; None where it does not."""
        async with self._answer("GET", "/is_paused", HEALTH_S) as response:
            if response.is_client_error:
                return None
            response.raise_for_status()
            await response.aread()
            told = response.json()
        return isinstance(told, dict) and told.get("is_paused") is True

    async def generates(self, model: str, rank: int | None) -> bool:
        """Have one token generated. False: it refused, which its HTTP server does without asking the engine."""
        headers = {} if rank is None else {"x-data-parallel-rank": str(rank)}
        body = _ONE_TOKEN | {"model": model}
        async with self._answer("POST", "/v1/completions", READING_S, headers=headers, json=body) as response:
            await response.aread()
            return response.is_success

    async def _get(self, path: str) -> str:
        async with self._answer("GET", path, READING_S, headers=_UNPACKED) as response:
            response.raise_for_status()
            body = bytearray()
            async for part in response.aiter_bytes():
                body += part
                if len(body) > MAX_METRICS_BYTES:
                    raise OSError(f"{path} is larger than {MAX_METRICS_BYTES} bytes")
        return body.decode("utf-8", "replace")

    @asynccontextmanager
    async def _answer(self, method: str, path: str, limit_s: float, **options: Any) -> AsyncIterator[httpx.Response]:
        """Send a request whose whole answer is read within `limit_s`; turn every failure into an OSError."""
        try:
            async with (
                asyncio.timeout(limit_s),
                self._client.stream(method, self._base_url + path, **options) as response,
            ):
                yield response
        except httpx.TimeoutException as error:
            raise TimeoutError(str(error)) from error
        except httpx.ConnectError as error:
            fault = own_fault(error)
            if fault is not None:
                raise OSError(fault.errno, fault.strerror) from error
            raise ConnectionRefusedError(str(error)) from error
        except (httpx.HTTPError, ValueError, RecursionError) as error:
            raise OSError(str(error)) from error
