"""A file's bytes -> replicas. The mistakes of whoever wrote it are told with the place."""

from __future__ import annotations

import difflib
import json
import tomllib
from typing import Any

import msgspec
import yaml

from router.adapters.discovery.endpoints import checked_ranks, checked_weight, endpoints, expand, replica_url
from router.ports import Endpoint

# Written in C where the wheel has it, and ten times faster then.
_YamlLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One engine in a file."""

    url: str
    model: str | None = None
    models: tuple[str, ...] = ()
    weight: float = 1.0
    labels: dict[str, str] = {}
    ranks: int | None = None
    leaving: bool = False


def read_replicas(data: bytes, suffix: str) -> list[Endpoint]:
    """Return the replicas of a file, in its order. `suffix`: one of `description.FILE_SUFFIXES`, in lower case.

    ValueError says what is wrong, and where.
    """
    document = _document(data, suffix)
    if not isinstance(document, dict) or "replicas" not in document:
        raise ValueError("there is no list called replicas")
    _check_keys(document, ("replicas",), "the file")
    listed = document["replicas"]
    if not isinstance(listed, list):
        raise ValueError("replicas must be a list")
    found: dict[tuple[str, str, int | None], Endpoint] = {}
    for number, item in enumerate(listed):
        where = f"replicas[{number}]"
        for endpoint in _engine(item, where):
            if endpoint.identity in found:
                raise ValueError(f"{where}: {endpoint.url} is there twice")
            found[endpoint.identity] = endpoint
    return list(found.values())


def _document(data: bytes, suffix: str) -> object:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None
    if suffix == ".toml":
        return _toml(text)
    return _json(text) if suffix == ".json" else _yaml(text)


def _toml(text: str) -> object:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"no TOML: {error}") from None


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error.msg} (at line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise ValueError("no JSON: nested too deeply") from None


def _yaml(text: str) -> object:
    try:
        return yaml.load(text, Loader=_YamlLoader)  # noqa: S506 - it is the safe loader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f" (at line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise ValueError(f"no YAML: {error.problem}{place}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"no YAML: {' '.join(str(error).split())}") from None


def _engine(item: object, where: str) -> list[Endpoint]:
    if isinstance(item, str):
        return _at(where, lambda: endpoints(item))
    if not isinstance(item, dict):
        raise ValueError(f"{where}: a replica is a text, or a table with a url")
    _check_keys(item, Entry.__struct_fields__, where)
    try:
        entry = msgspec.convert(item, Entry)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {str(error).replace('`', '').replace(' - at $.', ' in ')}") from None
    return _at(where, lambda: _replicas(entry))


def _at(where: str, read: Any) -> list[Endpoint]:
    try:
        found: list[Endpoint] = read()
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return found


def _replicas(entry: Entry) -> list[Endpoint]:
    models = entry.models if entry.model is None else (entry.model, *entry.models)
    if not all(models):
        raise ValueError("a model has no name")
    endpoint = Endpoint(
        replica_url(entry.url),
        models=tuple(dict.fromkeys(models)),
        weight=checked_weight(entry.weight),
        labels=tuple(sorted(entry.labels.items())),
        leaving=entry.leaving,
    )
    return expand(endpoint, None if entry.ranks is None else checked_ranks(entry.ranks))


def _check_keys(table: dict[Any, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            guess = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            raise ValueError(f"{where}: {key!r} is unknown; {guess}")
