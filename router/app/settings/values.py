"""What a setting's value may be, beyond its type and range: replicas, header names, networks and where Redis is."""

import importlib.util
import ipaddress
import json
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from pydantic import SecretStr

from router.adapters.discovery import description
from router.adapters.discovery.endpoints import written_out
from router.adapters.kv_events.sources import read_given
from router.adapters.redis_store.address import parse

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 section 5.6.2, token
_OTLP_EXPORTER = "opentelemetry.exporter.otlp.proto.http"
_ORIGIN = re.compile(r"https?://[A-Za-z0-9_.\[\]:-]+", re.IGNORECASE)


def split_list(value: object) -> object:
    """A list as text, `a,b` or `["a", "b"]`, as a list; list items are split at commas too."""
    if isinstance(value, str):
        return _from_json(value) if value.lstrip().startswith("[") else _at_commas([value])
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return _at_commas(value)
    return value


def _from_json(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"begins like a JSON list and is none: {error}") from None


def _at_commas(items: Iterable[str]) -> list[str]:
    return [part.strip() for item in items for part in item.split(",") if part.strip()]


def replica_specs(specs: tuple[str, ...]) -> tuple[str, ...]:
    """The replicas as they are written out in full; ValueError for one that is malformed or given twice."""
    return _without_repeats(map(written_out, specs))


def discoveries(sources: tuple[str, ...]) -> tuple[str, ...]:
    """The sources as they are written out in full; ValueError for one that can't be understood or is given twice."""
    return _without_repeats(str(description.parse(source)) for source in sources)


def aliases(pairs: tuple[str, ...]) -> tuple[str, ...]:
    """The pairs as they are; ValueError for one that is no NAME=MODEL, names itself, or is given twice."""
    names = []
    for pair in pairs:
        name, equals, model = (part.strip() for part in pair.partition("="))
        if not (name and equals and model):
            raise ValueError(f"{pair!r} must have the form NAME=MODEL")
        if name == model:
            raise ValueError(f"{name} is an alias of itself")
        names.append(name)
    _without_repeats(names)
    return pairs


def tokenizers(specs: tuple[str, ...]) -> tuple[str, ...]:
    """The specs as they are; ValueError for two of one model, or where nothing is installed to read them."""
    pairs = [tokenizer_pair(spec) for spec in specs]
    for spec, (_, path) in zip(specs, pairs, strict=True):
        if not path:
            raise ValueError(f"{spec!r} must have the form PATH or NAME=PATH")
    _without_repeats(name or "the one for all models" for name, _ in pairs)
    if specs and not (_is_installed("tokenizers") and _is_installed("jinja2")):
        raise ValueError("a tokenizer needs packages that are not installed: pip install 'warmroute[tokenizer]'")
    return specs


def tokenizer_pair(spec: str) -> tuple[str, str]:
    """The model's name and the path; an empty name for all models that no other names."""
    name, equals, path = spec.partition("=")
    return (name.strip(), path.strip()) if equals else ("", spec.strip())


def networks(texts: tuple[str, ...]) -> tuple[str, ...]:
    """The networks as ADDRESS/BITS; ValueError for what is none."""
    try:
        return _without_repeats(str(ipaddress.ip_network(text, strict=False)) for text in texts)
    except ValueError as error:
        raise ValueError(f"{error}: give an address, or a network such as 10.0.0.0/8") from None


def origins(texts: tuple[str, ...]) -> tuple[str, ...]:
    """The origins in lower case; ValueError for what a browser would not send."""
    for text in texts:
        if text != "*" and not _ORIGIN.fullmatch(text):
            raise ValueError(f"{text!r} must have the form https://host or https://host:port, or be *")
    return _without_repeats(text.lower() for text in texts)


def header_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names in lower case; ValueError for one that HTTP does not allow or that is given twice."""
    for name in names:
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no HTTP header name")
    return _without_repeats(name.lower() for name in names)


def _without_repeats(items: Iterable[str]) -> tuple[str, ...]:
    seen: list[str] = []
    for item in items:
        if item in seen:
            raise ValueError(f"{item} is given twice")
        seen.append(item)
    return tuple(seen)


def bearer_key(key: SecretStr | None) -> SecretStr | None:
    """The key without white space around it, which files of secrets have; ValueError where no header can hold it."""
    if key is None:
        return None
    text = key.get_secret_value().strip()
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("must be one word of visible ASCII characters")
    return SecretStr(text)


def redis_url(url: SecretStr | None) -> SecretStr | None:
    """The URL as it is; ValueError for one that can't be understood. Its words never quote a password."""
    if url is not None:
        parse(url.get_secret_value())
    return url


def otlp_url(url: str | None) -> str | None:
    """The URL as it is; ValueError for one that can't be a collector's, or where nothing is installed to send there."""
    if url is None:
        return None
    parts = urlsplit(url)
    if "@" in url or parts.query or parts.fragment:  # first: what comes next repeats the URL
        raise ValueError("must be no more than scheme, host, port and path: keys go into OTEL_EXPORTER_OTLP_HEADERS")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{url!r} must have the form http://host:4318 or https://host:4318")
    if not _is_installed(_OTLP_EXPORTER):
        raise ValueError("tracing needs packages that are not installed: pip install 'warmroute[otel]'")
    return url


def event_sources(sources: tuple[str, ...]) -> tuple[str, ...]:
    """The sources as they are; ValueError for one that can't be understood or is given twice."""
    for source in sources:
        read_given(source)
    return _without_repeats(sources)


def bind_address(address: str | None) -> str | None:
    """The address as it is; ValueError for one that can't be listened on."""
    if address is not None and re.fullmatch(r"tcp://(\*|\[[0-9a-fA-F:]+\]|[^:/?#\s]+):[0-9]{1,5}", address) is None:
        raise ValueError(f"{address!r} must have the form tcp://HOST:PORT")
    return address


def has_zmq() -> bool:
    """Tell whether the packages of the extra `kv-events` are installed."""
    return _is_installed("zmq")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it is missing
        return False
