"""Published speeds of models on GPUs, as simulated engines take them.

`measured`: from `vllm bench serve` runs of vLLM 0.11.0 with its defaults, all requests at once, published at
https://docs.gpustack.ai/latest/performance-lab. A step's token limit over the inter-token latency of steps full of
prefill (2,000-token prompts; A100: 2,048 tokens, H100: 8,192) is the prefill speed; latency of steps without prefill,
at few and at many sequences, is that of decoding.

`fitted`: step time = b0 + b1 x prefill tokens + b2 x decoding sequences, from
https://github.com/inference-sim/inference-sim (defaults.yaml; vLLM 0.8.4). Prefill speed is that of steps of 2,048
tokens. For 8B models they are at what the card can do at its best: an upper bound.

Room for the KV cache is arithmetic: 0.9 of the GPUs' memory less the weights in bfloat16 and 2 GB a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from router.sim.types import EngineConfig

MEMORY_RATIO = 0.9
"""vLLM's `--gpu-memory-utilization` by default, up to 0.11 at least: what the measured ones ran with."""

WORKSPACE_BYTES = 2_000_000_000
"""Of each GPU, for activations and CUDA graphs."""

_GPUSTACK = "https://docs.gpustack.ai/latest/performance-lab"
_INFERENCE_SIM = "https://github.com/inference-sim/inference-sim/blob/main/defaults.yaml"


@dataclass(frozen=True, slots=True)
class Profile:
    """One model on one kind of replica."""

    name: str
    model: str
    gpu: str
    gpus: int
    gpu_bytes: int
    """Memory of each."""
    weights_bytes: int
    kv_token_bytes: int
    """KV cache of one token: layers x KV heads x head size x 2 x 2 bytes."""
    prefill_tokens_per_s: float
    """At prompts of some 2,000 tokens; the time that attention takes for longer ones is not simulated."""
    decode_s: float
    """Of a step, but for the sequences in it."""
    decode_per_seq_s: float
    kind: Literal["measured", "fitted"]
    source: str

    @property
    def kv_tokens(self) -> int:
        """Tokens that the KV cache holds."""
        room_bytes = self.gpus * (MEMORY_RATIO * self.gpu_bytes - WORKSPACE_BYTES) - self.weights_bytes
        return int(room_bytes / self.kv_token_bytes) // 1_000 * 1_000

    def engine(self) -> EngineConfig:
        """Return engines of this profile. Decoding beside a prefill is in the measured speed already."""
        return replace(
            EngineConfig(),
            kv_tokens=self.kv_tokens,
            prefill_tokens_per_s=self.prefill_tokens_per_s,
            prefill_slowdown_per_seq=0.0,
            decode_s=self.decode_s,
            decode_per_seq_s=self.decode_per_seq_s,
        )


DEFAULT = "default"
"""The replica that policies were compared on: `EngineConfig`'s own values."""

_80_GIB = 80 << 30

PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            "qwen3-14b-a100", "Qwen3-14B", "A100 80GB", 1, _80_GIB, 29_500_000_000, 163_840,
            6_130.0, 0.043, 0.00002, "measured", f"{_GPUSTACK}/qwen3-14b/a100",
        ),
        Profile(
            "qwen3-14b-h100", "Qwen3-14B", "H100 80GB", 1, _80_GIB, 29_500_000_000, 163_840,
            12_760.0, 0.043, 0.00002, "measured", f"{_GPUSTACK}/qwen3-14b/h100",
        ),
        Profile(
            "qwen3-32b-a100", "Qwen3-32B", "A100 80GB", 1, _80_GIB, 65_500_000_000, 262_144,
            3_470.0, 0.0485, 0.00015, "measured", f"{_GPUSTACK}/qwen3-32b/a100",
        ),
        Profile(
            "qwen3-32b-h100", "Qwen3-32B", "H100 80GB", 1, _80_GIB, 65_500_000_000, 262_144,
            5_600.0, 0.043, 0.00006, "measured", f"{_GPUSTACK}/qwen3-32b/h100",
        ),
        Profile(
            "llama-3.1-8b-a100", "Llama-3.1-8B", "A100 80GB", 1, _80_GIB, 16_100_000_000, 131_072,
            17_900.0, 0.0164, 0.000018, "fitted", _INFERENCE_SIM,
        ),
        Profile(
            "llama-3.1-8b-h100", "Llama-3.1-8B", "H100 80GB", 1, _80_GIB, 16_100_000_000, 131_072,
            49_900.0, 0.00575, 0.000006, "fitted", _INFERENCE_SIM,
        ),
        Profile(
            "llama-3.1-8b-2xh100", "Llama-3.1-8B", "H100 80GB", 2, _80_GIB, 16_100_000_000, 131_072,
            47_500.0, 0.00691, 0.0000028, "fitted", _INFERENCE_SIM,
        ),
        Profile(
            "llama-3.3-70b-4xh100", "Llama-3.3-70B", "H100 80GB", 4, _80_GIB, 141_000_000_000, 327_680,
            12_100.0, 0.0126, 0.000067, "fitted", _INFERENCE_SIM,
        ),
    )
}  # fmt: skip
"""Qwen3-14B on A100: no step without prefill is to be seen in its runs, so decoding is taken from the H100's."""


def names() -> list[str]:
    """Return the names that `engine_of` knows."""
    return [DEFAULT, *PROFILES]


def engine_of(name: str) -> EngineConfig:
    """Return engines by the name of a profile. ValueError: there is none."""
    if name == DEFAULT:
        return EngineConfig()
    if name not in PROFILES:
        raise ValueError(f"no model profile {name!r}; there are {', '.join(names())}")
    return PROFILES[name].engine()
