"""What one simulated replica is: its models, its engine, and the vLLM flags that change what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from router.sim.types import EngineConfig

VERSION = "0.32.0"
"""The vLLM release whose answers are imitated."""

FINGERPRINT = f"vllm-{VERSION}-5117c0de"
"""`system_fingerprint`: vLLM's has a hash of its configuration at the end; ours is the same for all replicas."""

MAX_RANKS = 1024
"""As many data-parallel ranks as a replica of the router's may have."""


@dataclass(frozen=True, slots=True)
class KvEventsOptions:
    """--kv-events-config, and how releases differ. Ports are free ones; /kv_event_sources tells which."""

    topic: str = ""
    replay: bool = True
    """Whether there is a replay endpoint."""
    buffer_steps: int = 10_000
    """Batches kept for replays."""
    connect_to: str | None = None
    """Endpoint to connect to, instead of binding one."""
    arrays: bool = False
    """Events are arrays, and replays have no topic, as before 0.27."""
    byte_hashes: bool = False
    """VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0: hashes are 32 bytes."""
    name_sessions: bool = True
    """Events name the session of a request, as from 0.30 on."""


@dataclass(frozen=True, slots=True)
class SimOptions:
    """All that a replica is told at its start. The defaults are `vllm serve --enable-prompt-tokens-details`."""

    models: tuple[str, ...] = ("sim-model",)
    """Served names; the first is the one in metrics and in answers to requests without a model."""
    engine: EngineConfig = field(default_factory=EngineConfig)
    time_scale: float = 1.0
    """The engine's clock runs this many times faster than the wall's. Connection times (keep-alive, faults) do not."""
    prompt_tokens_details: bool = True
    """--enable-prompt-tokens-details: answers say how many prompt tokens were cached."""
    force_include_usage: bool = False
    """--enable-force-include-usage: streams end with usage, and carry it on every chunk, unasked."""
    keep_alive_s: float = 5.0
    """Idle connections are closed after this (VLLM_HTTP_TIMEOUT_KEEP_ALIVE)."""
    sse_keep_alive_s: float = 0.0
    """--sse-keep-alive-interval: a comment after this long without an event; 0: never."""
    api_key: str | None = None
    """--api-key: paths under /v1 and /v2 need it as a bearer token."""
    max_model_len: int = 131_072
    version: str = VERSION
    """What /version says; answers stay those of `VERSION`."""
    old_metric_names: bool = False
    """Name the cache metrics as vLLM did before 0.10: gpu_cache_usage_perc, gpu_prefix_cache_*."""
    request_id_headers: bool = False
    """--enable-request-id-headers: every answer has an x-request-id."""
    response_store: bool = True
    """VLLM_ENABLE_RESPONSES_API_STORE=1: responses can be fetched and continued, here only. vLLM's default: off."""
    server_load_tracking: bool = False
    """--enable-server-load-tracking: /load counts; otherwise it says 0 for ever."""
    data_parallel: int = 1
    """--data-parallel-size: engines with caches of their own behind this one server."""
    kv_events: KvEventsOptions | None = None
    """Cache events are published over ZMQ; None: none are."""
    dev_mode: bool = False
    """VLLM_SERVER_DEV_MODE=1: /sleep, /wake_up, /reset_prefix_cache and their like exist."""
    recorded_requests: int = 512
    """How many of the latest requests are kept for inspection, bodies and all; 0: none."""

    def __post_init__(self) -> None:
        """Refuse what could not run.

        Raises:
            ValueError: no model name, or a number out of range.
        """
        if not self.models or not all(self.models):
            raise ValueError("a replica serves at least one model, and names are not empty")
        if not 1 <= self.data_parallel <= MAX_RANKS:
            raise ValueError(f"data_parallel is from 1 to {MAX_RANKS}")
        if self.time_scale <= 0 or self.keep_alive_s <= 0 or self.max_model_len < 1 or self.recorded_requests < 0:
            raise ValueError("time_scale, keep_alive_s, max_model_len: above 0; recorded_requests: 0 or more")
