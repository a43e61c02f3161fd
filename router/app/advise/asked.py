"""What a user wants advice on, and what was left open, settled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from router.app.advise.live import Live
from router.app.advise.options import HOST_SPEED, STORE_SPEED
from router.app.replay.asked import Asked as Traffic
from router.app.replay.numbers import counts, number
from router.app.replay.workloads import Ordered
from router.replay.advice.ladder import Sizes
from router.replay.plan import Plan
from router.replay.profiles import DEFAULT, PROFILES

POLICY = "affinity"
"""What is advised is for this router, as it is meant to run."""

KV_TOKEN_BYTES = 131_072
"""Of the default replica, which is no model's: those of an 8B model (Llama-3.1-8B: 32 layers x 8 KV heads x 128 x 2 x 2
bytes)."""

MODEL = "MODEL"
"""Stands in the commands where no model was named."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The command's arguments."""

    traffic: Traffic
    """`source` is empty where the recording of a running router is meant."""
    admin: str | None = None
    record: Path | None = None
    check: Path | None = None
    host_gib: str = ""
    store_gib: str = ""
    history_tokens: str = ""
    host_speed: str = HOST_SPEED
    store_speed: str = STORE_SPEED
    kv_token_bytes: int | None = None
    model: str | None = None
    vllm_version: str | None = None
    driver: str | None = None

    @property
    def token_bytes(self) -> int:
        """KV cache of one token, as said or as the profile has it."""
        if self.kv_token_bytes is not None:
            return self.kv_token_bytes
        profile = PROFILES.get(self.traffic.model_profile)
        return profile.kv_token_bytes if profile else KV_TOKEN_BYTES

    @property
    def sizes(self) -> Sizes:
        """What is tried. ConfigError: a number is none."""
        return Sizes(
            kv_token_bytes=self.token_bytes,
            host_bytes_per_s=number(self.host_speed, "--host-speed"),
            store_bytes_per_s=number(self.store_speed, "--store-speed"),
            host_gib=counts(self.host_gib, "--host-gib") if self.host_gib else (),
            store_gib=counts(self.store_gib, "--store-gib") if self.store_gib else (),
            history_tokens=counts(self.history_tokens, "--history-tokens") if self.history_tokens else (),
        )

    @property
    def gpus(self) -> int:
        """Of a replica."""
        profile = PROFILES.get(self.traffic.model_profile)
        return profile.gpus if profile else 1

    @property
    def named_model(self) -> str | None:
        """As given, or else the profile's."""
        profile = PROFILES.get(self.traffic.model_profile)
        return self.model or (profile.model if profile else None)


def plan_of(ordered: Ordered, asked: Asked, live: Live | None) -> Plan:
    """Return the fleet as it is: as given, else as the running router knows it, else as the trace or profile has it."""
    plan, traffic = replace(ordered.plan, policy=POLICY), asked.traffic
    if live is None:
        return plan
    engine = plan.engine
    if live.kv_tokens and traffic.kv_tokens is None:
        engine = replace(engine, kv_tokens=live.kv_tokens)
    if live.prefill_tokens_per_s and traffic.model_profile == DEFAULT:
        engine = replace(engine, prefill_tokens_per_s=live.prefill_tokens_per_s, prefill_slowdown_per_seq=0.0)
    return replace(plan, engine=engine, replicas=traffic.replicas or live.replicas or plan.replicas)
