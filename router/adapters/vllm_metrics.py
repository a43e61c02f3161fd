"""Reads one vLLM over HTTP: /metrics into an `EngineReport`, /v1/models as it is."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable

import httpx
from prometheus_client.parser import text_string_to_metric_families

from router.core.types import EngineReport

NAMES = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:kv_cache_usage_perc": "kv_usage",
    "vllm:gpu_cache_usage_perc": "kv_usage",
    "vllm:prefix_cache_queries_total": "queries",
    "vllm:prefix_cache_hits_total": "hits",
    "vllm:gpu_prefix_cache_queries_total": "queries",
    "vllm:gpu_prefix_cache_hits_total": "hits",
    "vllm:num_preemptions_total": "preemptions",
    "vllm:cache_config_info": "config",
    "vllm:engine_sleep_state": "sleep",
    "process_start_time_seconds": "start_time",
}
"""Metric names of vLLM since 0.6 -> what they are here; the gpu_ names are those of releases before 0.11."""

_WANTED = re.compile(rf"^(?:{'|'.join(map(re.escape, NAMES))})(?:{{[^\n]*}})? [^\n]+(?=\n)", re.MULTILINE)
"""The dozen lines that are read of some 800: the parser is written in Python and takes 10 ms for all of them. A line
without its end may lack digits."""

MAX_METRICS_BYTES = 4 << 20
"""A real exposition has 50 to 70 kB, with 16 data-parallel ranks under 1 MB."""

_UNPACKED = {"accept-encoding": "identity"}
"""Packing 60 kB costs both sides more than sending them does."""

Sample = tuple[dict[str, str], float]


def parse_report(text: str) -> EngineReport:
    """Read an exposition. What is missing or no number is None: unknown, never zero."""
    samples = _samples(text)
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
    )


def _samples(text: str) -> dict[str, list[Sample]]:
    """Return the samples by our names. Where a page has a metric under two names, those of the first in `NAMES`."""
    by_name: dict[str, list[Sample]] = defaultdict(list)
    for line in _WANTED.findall(text):
        try:
            for family in text_string_to_metric_families(line + "\n"):
                for sample in family.samples:
                    by_name[sample.name].append((sample.labels, sample.value))
        except (ValueError, KeyError, IndexError):
            continue  # one garbled line says nothing of the others
    samples: dict[str, list[Sample]] = defaultdict(list)
    for name, ours in reversed(NAMES.items()):
        if name in by_name:
            samples[ours] = by_name[name]
    return samples


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
    """Reads one vLLM with an httpx client that belongs to the caller."""

    def __init__(self, client: httpx.AsyncClient, base_url: str) -> None:
        """`base_url`: scheme, host and port."""
        self._client = client
        self._base_url = base_url

    async def report(self) -> EngineReport:
        """Read /metrics. Raises as `ports.EngineProbe.report`."""
        return parse_report(await self._get("/metrics"))

    async def models(self) -> list[dict[str, object]]:
        """Read /v1/models. Raises as `ports.EngineProbe.report`."""
        try:
            listed = httpx.Response(200, text=await self._get("/v1/models")).json()["data"]
        except (ValueError, KeyError, TypeError) as error:
            raise OSError("the model list is not in OpenAI's form") from error
        if not isinstance(listed, list):
            raise OSError("the model list is not in OpenAI's form")
        return [model for model in listed if isinstance(model, dict) and isinstance(model.get("id"), str)]

    async def _get(self, path: str) -> str:
        try:
            async with self._client.stream("GET", self._base_url + path, headers=_UNPACKED) as response:
                response.raise_for_status()
                body = b""
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > MAX_METRICS_BYTES:
                        raise OSError(f"{path} is larger than {MAX_METRICS_BYTES} bytes")
        except httpx.TimeoutException as error:
            raise TimeoutError(str(error)) from error
        except httpx.ConnectError as error:
            raise ConnectionRefusedError(str(error)) from error
        except httpx.HTTPError as error:
            raise OSError(str(error)) from error
        return body.decode("utf-8", "replace")
