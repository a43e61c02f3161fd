"""Where each setting's value comes from: flag, environment variable, config file or default, in this order."""

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource, TomlConfigSettingsSource

from router.app.settings.files import Mark, mark
from router.app.settings.model import ENVIRONMENT_PREFIX, Settings
from router.app.settings.text import is_secret

CONFIG_VARIABLE = ENVIRONMENT_PREFIX + "CONFIG"

# Kubernetes gives every pod variables for each Service of its namespace. For one called warmroute (or warmroute-redis)
# they begin with our prefix, and WARMROUTE_PORT is tcp://10.0.0.7:8080.
_SERVICE_LINK = re.compile(r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
_SERVICE_LINK_URL = re.compile(r"(tcp|udp|sctp)://")


class ConfigError(ValueError):
    """The settings cannot be used; the text is one line for the person who wrote them."""


@dataclass(frozen=True, slots=True)
class Effective:
    """The settings in force and, for each by name, `flag`, `environment`, `file NAME` or `default`."""

    settings: Settings
    source: Mapping[str, str]
    flags: Mapping[str, Any]
    config: Path | None
    """The file that was read, if any."""
    mark: Mark | None
    """The file's before it was read."""

    def again(self) -> "Effective":
        """The effective settings of now: from the same flags and file. Raises ConfigError."""
        return load(self.flags, self.config)


def load(flags: Mapping[str, Any], config: Path | None = None) -> Effective:
    """The effective settings from `flags` (by setting name), the environment and the file; ConfigError when unusable.

    Without `config` the file is the one that WARMROUTE_CONFIG names, if any.
    """
    config = config or _config_from_environment()
    read = None if config is None else mark(config)
    layers = [("environment", _from_environment()), ("flag", dict(flags))]
    if config is not None:
        layers.insert(0, (f"file {config}", _from_file(config)))
    values: dict[str, Any] = {}
    source = dict.fromkeys(Settings.model_fields, "default")
    for name, layer in layers:
        values |= layer
        source |= dict.fromkeys(layer, name)
    try:
        return Effective(Settings(**values), source, dict(flags), config, read)
    except ValidationError as error:
        raise ConfigError(_explain(error, source)) from None


def flag_of(name: str) -> str:
    """The command line's spelling of a setting: `--max-retries` for `max_retries`."""
    return "--" + name.replace("_", "-")


def variable_of(name: str) -> str:
    """The environment's spelling of a setting: `WARMROUTE_MAX_RETRIES` for `max_retries`."""
    return ENVIRONMENT_PREFIX + name.upper()


def _config_from_environment() -> Path | None:
    named = os.environ.get(CONFIG_VARIABLE)
    return Path(named) if named else None


def _from_environment() -> dict[str, Any]:
    known = {variable_of(name) for name in Settings.model_fields} | {CONFIG_VARIABLE}
    for variable, value in os.environ.items():
        name = variable.upper()
        if name.startswith(ENVIRONMENT_PREFIX) and name not in known and not _is_service_link(name, value):
            raise ConfigError(f"environment variable {variable} is no setting{_suggest(name, known)}")
    values = EnvSettingsSource(Settings)()
    return {name: value for name, value in values.items() if not _is_service_link(variable_of(name), value)}


def _is_service_link(variable: str, value: str) -> bool:
    url_of_port = variable.endswith("_PORT") and _SERVICE_LINK_URL.match(value) is not None
    return url_of_port or _SERVICE_LINK.fullmatch(variable) is not None


def _from_file(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ConfigError(f"config file {path} does not exist")
    try:
        values = TomlConfigSettingsSource(Settings, toml_file=path)()
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"config file {path} is not valid TOML: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"config file {path} cannot be read: {error}") from None
    for key in values:
        if key not in Settings.model_fields:
            raise ConfigError(f"{key!r} in file {path} is no setting{_suggest(key, Settings.model_fields)}")
    return values


def _suggest(wrong: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(wrong.replace("-", "_"), known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _explain(error: ValidationError, source: Mapping[str, str]) -> str:
    """The first problem in one line, and how many more there are."""
    problems = error.errors(include_url=False)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return _explain_one(problems[0], source) + more


def _explain_one(problem: ErrorDetails, source: Mapping[str, str]) -> str:
    text = _plain(problem["msg"])
    if not problem["loc"]:
        return text
    name = str(problem["loc"][0])
    return f"{name} ({_place(name, source[name])}): {text}{_given(name, problem)}"


def _plain(message: str) -> str:
    """Pydantic's message in a user's words."""
    text = message.removeprefix("Value error, ").removeprefix("Input ").split(", unable to ")[0]
    return text.replace("Path does", "does").replace("a valid tuple", "a list of strings")


def _place(name: str, source: str) -> str:
    """The source as the user typed it."""
    return {"flag": f"flag {flag_of(name)}", "environment": f"environment {variable_of(name)}"}.get(source, source)


def _given(name: str, problem: ErrorDetails) -> str:
    """What was given instead; nothing for a secret, or where the text already quotes it."""
    value = problem["input"]
    if problem["type"] == "value_error" or is_secret(Settings.model_fields[name]):
        return ""
    allowed = re.findall(r"'([^']+)'", problem["msg"]) if problem["type"] == "literal_error" else []
    return f", not {value!r}{_suggest(str(value), allowed)}"
