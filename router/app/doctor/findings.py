"""What is found: one thing looked at, how it is, why that matters and what to change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is; from the mildest to the worst."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing, or could not be told."""
    WARNING = "warning"
    """It works, and costs hits, speed or safety."""
    PROBLEM = "problem"
    """It does not work as meant: the exit code is 1."""


class Check(StrEnum):
    """What was looked at; `docs/how-to/check-a-set-up.md` describes each."""

    ROUTER = "router"
    READY = "ready"
    ADMIN = "admin"
    POLICY = "policy"
    REPLICA_STATE = "replica-state"
    ROUTER_READS = "router-reads"
    QUEUE = "queue"
    REDIS = "redis"
    ROUTERS = "routers"
    REACHABLE = "reachable"
    IS_VLLM = "is-vllm"
    ONE_ENGINE = "one-engine"
    VERSION = "version"
    AWAKE = "awake"
    MODELS = "models"
    PREFIX_CACHING = "prefix-caching"
    CAPACITY = "capacity"
    RANKS = "ranks"
    OFFLOAD = "offload"
    KV_METRICS = "kv-metrics"
    KV_EVENTS = "kv-events"
    SHUTDOWN_TIMEOUT = "shutdown-timeout"
    DEV_MODE = "dev-mode"
    GENERATES = "generates"
    TOKEN_DETAILS = "token-details"  # noqa: S105 - no password
    KEEP_ALIVE = "keep-alive"
    ALIKE = "alike"
    LISTED_TWICE = "listed-twice"
    TWO_TURNS = "two-turns"
    PREDICTED = "predicted"
    STREAMS = "streams"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. Nothing in it is ever a key or text of a prompt."""

    level: Level
    check: Check
    about: str
    """router, fleet, two turns, or a replica's name."""
    what: str
    why: str = ""
    change: str = ""
    """The flag, setting or step that cures it; empty where nothing need be done."""


def worst(findings: Iterable[Finding]) -> Level:
    """Return the worst level of all; ok for none."""
    order = list(Level)
    return max((finding.level for finding in findings), key=order.index, default=Level.OK)


@dataclass(frozen=True, slots=True)
class Remarks:
    """Makes findings about one thing."""

    about: str

    def ok(self, check: Check, what: str) -> Finding:
        """Return what is as it should be."""
        return Finding(Level.OK, check, self.about, what)

    def note(self, check: Check, what: str, why: str = "", change: str = "") -> Finding:
        """Return what is worth knowing."""
        return Finding(Level.NOTE, check, self.about, what, why, change)

    def warning(self, check: Check, what: str, why: str, change: str) -> Finding:
        """Return what costs something."""
        return Finding(Level.WARNING, check, self.about, what, why, change)

    def problem(self, check: Check, what: str, why: str, change: str) -> Finding:
        """Return what does not work as meant."""
        return Finding(Level.PROBLEM, check, self.about, what, why, change)
