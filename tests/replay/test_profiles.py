"""Published speeds: what is arithmetic in them."""

from __future__ import annotations

import pytest

from router.replay.profiles import PROFILES, engine_of, names
from router.sim.types import EngineConfig


def test_room_for_the_cache() -> None:
    # 0.9 x 85.9 GB - 2 GB - 16.1 GB = 59.2 GB, at 128 KiB a token.
    assert PROFILES["llama-3.1-8b-h100"].kv_tokens == 451_000
    # 4 x (0.9 x 85.9 GB - 2 GB) - 141 GB = 160.2 GB, at 320 KiB.
    assert PROFILES["llama-3.3-70b-4xh100"].kv_tokens == 489_000


def test_fitted_speeds_are_those_of_a_step_of_2048_tokens() -> None:
    for name, base_us, token_us in [
        ("llama-3.1-8b-a100", 16441.5, 47.837),
        ("llama-3.1-8b-h100", 5752.7, 17.251),
        ("llama-3.1-8b-2xh100", 6910.4, 17.671),
        ("llama-3.3-70b-4xh100", 12601.3, 76.423),
    ]:
        step_us = base_us + 2_048 * token_us
        assert PROFILES[name].prefill_tokens_per_s == pytest.approx(2_048 / step_us * 1e6, rel=0.005)
        assert PROFILES[name].decode_s == pytest.approx(base_us / 1e6, rel=0.005)


def test_measured_speeds_are_a_full_step_over_its_time() -> None:
    for name, step_tokens, step_s in [
        ("qwen3-14b-a100", 2_048, 0.33399),
        ("qwen3-14b-h100", 8_192, 0.64206),
        ("qwen3-32b-a100", 2_048, 0.59004),
        ("qwen3-32b-h100", 8_192, 1.46206),
    ]:
        assert PROFILES[name].prefill_tokens_per_s == pytest.approx(step_tokens / step_s, rel=0.005)


@pytest.mark.parametrize("name", PROFILES)
def test_engines_of_a_profile(name: str) -> None:
    profile, engine = PROFILES[name], engine_of(name)
    assert engine.kv_tokens == profile.kv_tokens > 10_000
    assert engine.prefill_tokens_per_s == profile.prefill_tokens_per_s
    assert (engine.decode_s, engine.decode_per_seq_s) == (profile.decode_s, profile.decode_per_seq_s)
    assert profile.source.startswith("https://")


def test_names() -> None:
    assert names()[0] == "default"
    assert engine_of("default") == EngineConfig()
    with pytest.raises(ValueError, match="no model profile 'gpt-2'; there are default, qwen3-14b-a100"):
        engine_of("gpt-2")
