"""A rung as commands."""

from __future__ import annotations

from router.replay.advice.ladder import Kind, Rung

ALWAYS = ("--enable-prompt-tokens-details", "--kv-cache-metrics")
"""Whatever is decided: what was cached is in each answer, and how long blocks survive in the metrics. The next look at
the decision needs both."""

KV_EVENTS = """--kv-events-config '{"enable_kv_cache_events": true, "endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5657"}'"""
"""By them the router learns which copies are in host memory. Else it takes a history for lost when the GPU has evicted
it, and sends the session elsewhere: of the conversation trace with 128 GiB a replica, half of the hits."""

MOONCAKE = """--kv-transfer-config '{"kv_connector": "MooncakeStoreConnector", "kv_role": "kv_both"}'"""


def commands(rung: Rung, model: str, gpus: int) -> list[str]:
    """Return what to start on each replica; for a shared store one command for each of the stores."""
    line = " ".join(["vllm serve", model, *([f"--tensor-parallel-size {gpus}"] if gpus > 1 else []), *ALWAYS])
    if rung.kind is Kind.OFFLOAD:
        return [f"{line} --kv-offloading-size {rung.size} {KV_EVENTS}"]
    if rung.kind is Kind.STORE:
        return [
            f"{line} --kv-offloading-size {rung.size} --kv-offloading-backend lmcache",
            f"{line} {MOONCAKE}",
        ]
    return [line]


def remark(rung: Rung) -> str:
    """Return what the commands do not say; empty where they say all."""
    return {
        Kind.STORE: "The first is for LMCache, the second for Mooncake. Either needs servers of its own, which every "
        f"replica reaches and which are given {rung.size:,} GiB in all.",
        Kind.OFFLOAD: f"The {rung.size:,} GiB are of `/dev/shm`, for all GPUs of a replica together. Start the router "
        "with `--kv-events auto`: else it does not know of the copies, and sends sessions away from them.",
        Kind.SHORTEN: f"The application drops whole turns from the middle of prompts above {rung.size:,} tokens, down "
        "to half of that at once. The model sees less: that is for the product's owner to decide.",
        Kind.REPLICAS: f"{rung.size:,} of them.",
    }.get(rung.kind, "")
