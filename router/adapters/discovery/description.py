"""A source of replicas as a person writes it, taken apart. Nothing is opened here."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from router.adapters.discovery.endpoints import (
    TRAITS,
    Traits,
    quoted,
    read_traits,
    replica_url,
    single,
    split_options,
)

FILE_SUFFIXES = (".toml", ".json", ".yaml", ".yml")
SERVICE_NAME_LABEL = "kubernetes.io/service-name"
"""Set on each EndpointSlice by whoever writes it: the Service it belongs to."""

_DNS_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_KUBERNETES_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?")
_LABEL_KEY = r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
_LABEL_VALUE = r"([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?"
_REQUIREMENT = re.compile(
    rf"!?{_LABEL_KEY}|{_LABEL_KEY} *(=|==|!=) *{_LABEL_VALUE}"
    rf"|{_LABEL_KEY} +(in|notin) *\( *{_LABEL_VALUE} *(, *{_LABEL_VALUE} *)*\)"
)
"""Label selectors as the API server reads them."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file with a list of replicas."""

    path: str

    def __str__(self) -> str:
        return f"file:{self.path}"


@dataclass(frozen=True, slots=True)
class NameSource:
    """A name whose addresses are replicas."""

    scheme: str
    host: str
    port: int
    traits: Traits = field(default_factory=Traits)

    def __str__(self) -> str:
        scheme = "" if self.scheme == "http" else f"{self.scheme}://"
        return f"dns:{scheme}{self.host}:{self.port}{_query(self.traits)}"


@dataclass(frozen=True, slots=True)
class ServiceRecords:
    """A name whose SRV records are replicas."""

    scheme: str
    name: str
    traits: Traits = field(default_factory=Traits)

    def __str__(self) -> str:
        usual = "https" if self.name.startswith("_https.") else "http"
        scheme = "" if self.scheme == usual else f"{self.scheme}://"
        return f"srv:{scheme}{self.name}{_query(self.traits)}"


Port = int | str | None


@dataclass(frozen=True, slots=True)
class SliceSource:
    """The EndpointSlices of a Kubernetes Service."""

    namespace: str
    """Empty for the router's own."""
    service: str
    port: Port = None
    """Number or name of the port on the pods; None where the Service has only one."""
    scheme: str = "http"
    traits: Traits = field(default_factory=Traits)

    def __str__(self) -> str:
        port = "" if self.port is None else f":{self.port}"
        return f"kubernetes:{self.namespace or '.'}/{self.service}{port}{_query(self.traits, self.scheme)}"

    @property
    def selector(self) -> str:
        """Labels by which the slices are found."""
        return f"{SERVICE_NAME_LABEL}={self.service}"


@dataclass(frozen=True, slots=True)
class PodSource:
    """Kubernetes pods with certain labels."""

    namespace: str
    """Empty for the router's own."""
    requirements: tuple[str, ...]
    """Each as in a label selector; all must hold."""
    port: int | str
    """Number, or name of a container's port."""
    scheme: str = "http"
    traits: Traits = field(default_factory=Traits)

    def __str__(self) -> str:
        selectors = "&".join(f"selector={quote(text, safe='/=!()')}" for text in self.requirements)
        return (
            f"kubernetes-pods:{self.namespace or '.'}?{selectors}&port={self.port}"
            f"{_query(self.traits, self.scheme).replace('?', '&')}"
        )

    @property
    def selector(self) -> str:
        """All requirements, as the API takes them."""
        return ",".join(self.requirements)


Description = FileSource | NameSource | ServiceRecords | SliceSource | PodSource


def parse(text: str) -> Description:
    """Take a source apart; `str()` of what comes out is its one full spelling.

    ValueError says what is wrong.
    """
    kind, _, rest = text.strip().partition(":")
    if not rest.isprintable():
        raise ValueError(f"{quoted(text)} has control characters")
    if kind in ("http", "https"):
        raise ValueError(f"{quoted(text)} is a replica and no source of replicas: give it as replica")
    read = _KINDS.get(kind)
    if read is None:
        close = difflib.get_close_matches(kind, _KINDS, n=1)
        guess = f"; did you mean {close[0]}:?" if close else ""
        raise ValueError(f"{quoted(text)} must begin with {', '.join(f'{known}:' for known in _KINDS)}{guess}")
    try:
        return read(rest)
    except ValueError as error:
        raise ValueError(f"{quoted(text)}: {error}") from None


def _file(rest: str) -> FileSource:
    path = rest[2:] if rest.startswith("///") else rest
    if path.startswith("//"):
        raise ValueError("a path follows file: at once, or a whole one file://")
    if not path.lower().endswith(FILE_SUFFIXES):
        raise ValueError(f"the file's name must end in {', '.join(FILE_SUFFIXES)}")
    return FileSource(path)


def _dns(rest: str) -> NameSource:
    place, options = _with_options(rest, TRAITS)
    parts = urlsplit(replica_url(place if "://" in place else f"http://{place}"))
    if re.search(r":\d+/?$", place) is None:
        raise ValueError("the port is missing: dns:HOST:PORT")
    host, port = parts.hostname or "", parts.port or 0
    if _is_address(host):
        raise ValueError("an address needs no look-up: give it as replica")
    return NameSource(parts.scheme, _checked_name(host), port, read_traits(options))


def _srv(rest: str) -> ServiceRecords:
    place, options = _with_options(rest, TRAITS)
    scheme, separator, name = place.lower().rpartition("://")
    if separator and scheme not in ("http", "https"):
        raise ValueError("only http:// or https:// may stand before the name")
    if ":" in name:
        raise ValueError("no port may follow: SRV records have it")
    usual = "https" if name.startswith("_https.") else "http"
    return ServiceRecords(scheme or usual, _checked_name(name), read_traits(options))


def _slices(rest: str) -> SliceSource:
    place, options = _with_options(rest, (*TRAITS, "scheme"))
    namespace, slash, service = place.partition("/")
    if not slash:
        raise ValueError("the form is kubernetes:NAMESPACE/SERVICE:PORT, with . for the router's own namespace")
    service, colon, port = service.partition(":")
    return SliceSource(
        _namespace(namespace),
        _kubernetes_name(service, "Service"),
        _port(port) if colon else None,
        _scheme(options),
        read_traits(options),
    )


def _pods(rest: str) -> PodSource:
    place, options = _with_options(rest, (*TRAITS, "selector", "port", "scheme"))
    namespace = _namespace(place)
    requirements = tuple(part for text in options.get("selector", ()) for part in _requirements(text))
    port = single(options, "port")
    if not requirements or port is None:
        raise ValueError("the form is kubernetes-pods:NAMESPACE?selector=LABELS&port=PORT")
    return PodSource(namespace, requirements, _port(port), _scheme(options), read_traits(options))


_KINDS: Mapping[str, Callable[[str], Description]] = {
    "file": _file, "dns": _dns, "srv": _srv, "kubernetes": _slices, "kubernetes-pods": _pods,
}  # fmt: skip


def _with_options(rest: str, known: tuple[str, ...]) -> tuple[str, dict[str, list[str]]]:
    place, options = split_options(rest)
    for name in options:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            guess = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            raise ValueError(f"{name!r} is no option of it; {guess}")
    return place, options


def _query(traits: Traits, scheme: str = "http") -> str:
    options = [text for text in (str(traits), "" if scheme == "http" else f"scheme={scheme}") if text]
    return "?" + "&".join(options) if options else ""


def _scheme(options: Mapping[str, list[str]]) -> str:
    scheme = single(options, "scheme") or "http"
    if scheme not in ("http", "https"):
        raise ValueError(f"scheme must be http or https, not {scheme!r}")
    return scheme


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_dns_name(name: str) -> bool:
    """Tell whether a name can be one of a host or a service; a dot may stand at its end."""
    labels = name.removesuffix(".").split(".")
    return len(name) <= 253 and all(_DNS_LABEL.fullmatch(label) for label in labels)


def _checked_name(name: str) -> str:
    if not is_dns_name(name):
        raise ValueError(f"{name!r} is no name in the DNS")
    return name


def _namespace(text: str) -> str:
    return "" if text in ("", ".") else _kubernetes_name(text, "namespace")


def _kubernetes_name(text: str, what: str) -> str:
    if not _KUBERNETES_NAME.fullmatch(text):
        raise ValueError(f"{text!r} is no name of a {what}")
    return text


def _port(text: str) -> int | str:
    if text.isascii() and text.isdecimal():
        if not 1 <= int(text[:6]) <= 65535:
            raise ValueError("a port is a number from 1 to 65535")
        return int(text)
    if not _PORT_NAME.fullmatch(text):
        raise ValueError(f"{text!r} is neither a port's number nor its name")
    return text


def _requirements(text: str) -> list[str]:
    parts = [part.strip() for part in re.split(r",(?![^(]*\))", text)]
    for part in parts:
        if not _REQUIREMENT.fullmatch(part):
            raise ValueError(f"{part!r} is no requirement of a label selector, such as app=vllm")
    return parts
