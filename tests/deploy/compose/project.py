"""docker-compose.yml as Compose reads it: variables put in, profiles applied, one entry for each container."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.contract.pages import ROOT

FILE = ROOT / "docker-compose.yml"
ENV_FILE = ROOT / ".env"
DOCKERFILE = ROOT / "deploy" / "container" / "Dockerfile"

_VARIABLE = re.compile(r"\$(?:\{(\w+)(?:(:?-)([^${}]*))?\}|(\$)|(.?))")
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


@dataclass(frozen=True)
class Port:
    """One that is published."""

    address: str
    published: int
    target: int


@dataclass(frozen=True)
class Mount:
    """A file or folder of ours, or a named volume."""

    source: str
    target: str
    read_only: bool

    @property
    def is_bind(self) -> bool:
        return self.source.startswith(".")


@dataclass(frozen=True)
class Service:
    """One service as the containers of it are started."""

    name: str
    raw: Mapping[str, Any]
    """As the file has it, with its variables put in."""
    ports: tuple[Port, ...]
    mounts: tuple[Mount, ...]
    aliases: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def image(self) -> str:
        """Without its tag."""
        return str(self.raw["image"]).partition(":")[0]

    @property
    def command(self) -> list[str]:
        return list(self.raw.get("command", []))

    @property
    def replicas(self) -> int:
        return int(self.raw.get("deploy", {}).get("replicas", 1))

    @property
    def stop_grace_s(self) -> int:
        return seconds(self.raw["stop_grace_period"])

    @property
    def waits_for(self) -> dict[str, str]:
        """Service -> condition."""
        return {name: needed["condition"] for name, needed in self.raw.get("depends_on", {}).items()}

    @property
    def containers(self) -> list[str]:
        """Names, as Compose gives them, without the project's."""
        return [f"{self.name}-{number + 1}" for number in range(self.replicas)]


def whole_file(variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Everything in the file, with YAML's merges and variables resolved."""
    found = _interpolated(yaml.safe_load(FILE.read_text()), variables or {})
    assert isinstance(found, dict)
    return found


def services(*profiles: str, variables: Mapping[str, str] | None = None) -> dict[str, Service]:
    """The services that start with these profiles, in the file's order."""
    raw = whole_file(variables)["services"]
    chosen = {name: it for name, it in raw.items() if not it.get("profiles") or set(profiles) & set(it["profiles"])}
    return {name: _service(name, it) for name, it in chosen.items()}


def default_profiles() -> list[str]:
    """What Compose takes where neither a flag nor the environment names any: .env says it."""
    lines = [line for line in ENV_FILE.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)["COMPOSE_PROFILES"].split(",")


def variables_used() -> dict[str, str]:
    """Variable -> default, of all that the file takes from the environment."""
    return {name: default for name, _, default, _, _ in _VARIABLE.findall(FILE.read_text()) if name}


def entrypoint() -> list[str]:
    """The image's own, of our Dockerfile."""
    found = re.findall(r"^ENTRYPOINT (\[.*\])$", DOCKERFILE.read_text(), re.MULTILINE)
    words: list[str] = json.loads(found[-1])
    return words


def image_environment() -> dict[str, str]:
    """What our image sets of Warmroute's settings."""
    return dict(re.findall(r"\b(WARMROUTE_\w+)=(\S+)", DOCKERFILE.read_text()))


def seconds(duration: str) -> int:
    """Of a duration such as 1m30s."""
    found = _DURATION.fullmatch(duration)
    assert found, duration
    assert any(found.groups()), duration
    hours, minutes, rest = (int(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + rest


def _service(name: str, raw: Mapping[str, Any]) -> Service:
    networks = raw.get("networks", {"default": None})
    assert set(networks) == {"default"}
    return Service(
        name=name,
        raw=raw,
        ports=tuple(_port(text) for text in raw.get("ports", [])),
        mounts=tuple(_mount(text) for text in raw.get("volumes", [])),
        aliases=tuple((networks["default"] or {}).get("aliases", [])),
        environment=raw.get("environment", {}),
    )


def _port(text: str) -> Port:
    address, published, target = text.split(":")
    return Port(address, int(published), int(target))


def _mount(text: str) -> Mount:
    source, target, *options = text.split(":")
    assert options in ([], ["ro"]), text
    return Mount(source, target, bool(options))


def source_of(mount: Mount) -> Path:
    """Where a bind mount's file or folder is here."""
    return (ROOT / mount.source).resolve()


def _interpolated(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _interpolated(inner, variables) for key, inner in value.items()}
    if isinstance(value, list):
        return [_interpolated(inner, variables) for inner in value]
    return _VARIABLE.sub(lambda found: _replaced(found, variables), value) if isinstance(value, str) else value


def _replaced(found: re.Match[str], variables: Mapping[str, str]) -> str:
    name, operator, default, dollar, other = found.groups()
    assert other is None, f"not of the forms that we know: {found.string}"
    if dollar:
        return "$"
    value = variables.get(name)
    return value if value or (value is not None and operator == "-") else default or ""
