"""What a user asked to be replayed: the traffic, the fleet, the policies, the sizes to try."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from router.app.replay.numbers import counts
from router.app.settings.sources import ConfigError
from router.replay.contenders import names
from router.replay.profiles import DEFAULT
from router.replay.sweep import Sweep, Swept

DEFAULT_POLICIES = ("affinity", "weighted-2-1-1", "tree-switch", "rr")
"""Warmroute's, the two best known cache-aware families, and what needs no knowledge at all."""
ALL = "all"
SWEPT: tuple[Swept, ...] = ("kv-tokens", "replicas")


@dataclass(frozen=True, slots=True)
class Asked:
    """The command's arguments. None: by the trace, or by the kind of traffic."""

    source: str
    policies: str = ""
    replicas: int | None = None
    kv_tokens: str | None = None
    block_tokens: int | None = None
    model_profile: str = DEFAULT
    rate_scale: float = 1.0
    closed: bool = False
    live: int | None = None
    seed: int = 1
    minutes: float | None = None
    warm_up_minutes: float | None = None
    speeds: str = ""
    routers: int = 1
    sync_ms: float = 0.0
    touch: bool = False
    sweep: str = ""
    target_ttft_p95_s: float = 2.0
    jobs: int | None = None
    json: Path | None = None
    html: Path | None = None


def policies_of(text: str) -> list[str]:
    """Return the named policies, each once, in their order; ConfigError names the first that there is not."""
    given = [name.strip() for name in text.split(",") if name.strip()] or list(DEFAULT_POLICIES)
    known = names()
    for name in given:
        if name not in known and name != ALL:
            raise ConfigError(f"--policy: there is no {name!r}; there are {', '.join(known)} and {ALL}")
    wanted = [one for name in given for one in (known if name == ALL else [name])]
    return list(dict.fromkeys(wanted))


def sweep_of(text: str) -> Sweep | None:
    """Read `kv-tokens=200k,400k` or `replicas=4,8`; None of nothing."""
    if not text:
        return None
    swept, _, values = text.partition("=")
    for known in SWEPT:
        if swept == known:
            return Sweep(known, tuple(sorted(set(counts(values, f"--sweep {swept}")))))
    raise ConfigError(f"--sweep: {text!r} is neither kv-tokens=200k,400k,... nor replicas=4,8,...")
