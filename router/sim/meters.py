"""What a replica counts besides its engine: histograms of requests in vLLM's buckets, and HTTP traffic by route."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_LATENCY_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
_TTFT_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
_TOKEN_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_HTTP_FINE_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0, 30.0, 60.0,
)  # fmt: skip
_HTTP_COARSE_S = (0.1, 0.5, 1.0)


class Histogram:
    """Counts by bucket; a bucket holds values up to and including its bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = tuple(float(bound) for bound in bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value, `times` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


@dataclass(slots=True)
class Finish:
    """One finished request. Times are seconds of the engine's clock."""

    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    limit_tokens: int
    choices: int
    queue_s: float
    ttft_s: float
    e2e_s: float


class RequestMeters:
    """Histograms of vLLM's requests, by the metric's name without `vllm:`."""

    def __init__(self, max_model_len: int) -> None:
        tokens = one_two_five(max_model_len)
        self.histograms = {
            "request_prompt_tokens": Histogram(tokens),
            "request_generation_tokens": Histogram(tokens),
            "iteration_tokens_total": Histogram(_STEP_TOKENS),
            "request_max_num_generation_tokens": Histogram(tokens),
            "request_params_n": Histogram((1, 2, 5, 10, 20)),
            "request_params_max_tokens": Histogram(tokens),
            "time_to_first_token_seconds": Histogram(_TTFT_S),
            "inter_token_latency_seconds": Histogram(_TOKEN_S),
            "request_time_per_output_token_seconds": Histogram(_TOKEN_S),
            "e2e_request_latency_seconds": Histogram(_LATENCY_S),
            "request_queue_time_seconds": Histogram(_LATENCY_S),
            "request_inference_time_seconds": Histogram(_LATENCY_S),
            "request_prefill_time_seconds": Histogram(_LATENCY_S),
            "request_decode_time_seconds": Histogram(_LATENCY_S),
            "request_num_preemptions": Histogram((1, 2, 3, 4, 5, 10, 20)),
            "request_prefill_kv_computed_tokens": Histogram(tokens),
        }

    def first_token(self, ttft_s: float, computed_tokens: int) -> None:
        """A prefill of so many uncached tokens ended."""
        self.histograms["time_to_first_token_seconds"].observe(ttft_s)
        self.histograms["iteration_tokens_total"].observe(computed_tokens)

    def more_tokens(self, count: int, passed_s: float) -> None:
        """So many tokens came out since the last ones of the same request."""
        if count:
            self.histograms["inter_token_latency_seconds"].observe(passed_s / count, count)
            self.histograms["iteration_tokens_total"].observe(1, count)

    def finished(self, finish: Finish) -> None:
        """A request ended by itself."""
        decode_s = max(0.0, finish.e2e_s - finish.ttft_s)
        values = {
            "request_prompt_tokens": finish.prompt_tokens,
            "request_generation_tokens": finish.generated_tokens,
            "request_max_num_generation_tokens": finish.generated_tokens,
            "request_params_n": finish.choices,
            "request_params_max_tokens": finish.limit_tokens,
            "request_time_per_output_token_seconds": decode_s / max(1, finish.generated_tokens - 1),
            "e2e_request_latency_seconds": finish.e2e_s,
            "request_queue_time_seconds": finish.queue_s,
            "request_inference_time_seconds": max(0.0, finish.e2e_s - finish.queue_s),
            "request_prefill_time_seconds": max(0.0, finish.ttft_s - finish.queue_s),
            "request_decode_time_seconds": decode_s,
            # The engine tells preemptions in sum only; they show in num_preemptions_total.
            "request_num_preemptions": 0,
            "request_prefill_kv_computed_tokens": finish.prompt_tokens - finish.cached_tokens,
        }
        for name, value in values.items():
            self.histograms[name].observe(value)


class _Sum:
    __slots__ = ("count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value


class HttpMeters:
    """Requests by route, as prometheus-fastapi-instrumentator counts them."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, str], int] = {}
        """By handler, method and status class."""
        self.request_bytes: dict[str, _Sum] = {}
        self.response_bytes: dict[str, _Sum] = {}
        self.fine = Histogram(_HTTP_FINE_S)
        self.coarse: dict[tuple[str, str], Histogram] = {}
        """By handler and method."""

    def count(self, handler: str, method: str, status: int, request_bytes: int, duration_s: float) -> None:
        """Count an answered request. Streams have no content-length, so their answers count 0 bytes, as there."""
        key = (handler, method, f"{status // 100}xx")
        self.requests[key] = self.requests.get(key, 0) + 1
        self.request_bytes.setdefault(handler, _Sum()).add(request_bytes)
        self.response_bytes.setdefault(handler, _Sum()).add(0)
        self.fine.observe(duration_s)
        self.coarse.setdefault((handler, method), Histogram(_HTTP_COARSE_S)).observe(duration_s)


def one_two_five(largest: int) -> Sequence[int]:
    """Return 1, 2, 5, 10, 20, 50... up to `largest`."""
    bounds: list[int] = []
    scale = 1
    while scale <= largest:
        bounds.extend(step * scale for step in (1, 2, 5) if step * scale <= largest)
        scale *= 10
    return bounds
