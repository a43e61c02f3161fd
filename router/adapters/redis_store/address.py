"""Where the shared state is kept: a URL taken apart, without importing a Redis client."""

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote, unquote

Kind = Literal["standalone", "sentinel", "cluster"]

_DEFAULT_PORT = 6379
_SENTINEL_PORT = 26379
_UNIX = "unix"
_SCHEMES: dict[str, tuple[Kind, bool]] = {
    "redis": ("standalone", False),
    "rediss": ("standalone", True),
    "valkey": ("standalone", False),
    "valkeys": ("standalone", True),
    _UNIX: ("standalone", False),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}
_TLS_OPTIONS = {"ssl_ca_certs", "ssl_cert_reqs"}
_SENTINEL_OPTIONS = {"sentinel_username", "sentinel_password"}


@dataclass(frozen=True, slots=True)
class Address:
    """One Redis or Valkey deployment. `str()` gives its URL without credentials, for logs and the admin API."""

    kind: Kind
    nodes: tuple[tuple[str, int], ...] = ()
    """Host and port of the server, of the sentinels, or of some nodes of the cluster; none with a socket's path."""
    path: str | None = None
    service: str = ""
    """The name that the sentinels know the master by."""
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    tls: bool = False
    verify: bool = True
    """Whether a TLS server must show a certificate that is trusted and is its own."""
    ca_file: str | None = None
    """Trusted certificates; None for the system's."""

    def __str__(self) -> str:
        database = f"/{self.db}" if self.kind != "cluster" else ""
        if self.path is not None:
            return f"unix://{quote(self.path)}" + (f"?db={self.db}" if self.db else "")
        nodes = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.nodes)
        scheme = ("rediss" if self.tls else "redis") + ("" if self.kind == "standalone" else f"+{self.kind}")
        service = f"/{quote(self.service, safe='')}" if self.service else ""
        return f"{scheme}://{nodes}{service}{database}{self._tls_options()}"

    def _tls_options(self) -> str:
        options = [] if self.ca_file is None else [f"ssl_ca_certs={quote(self.ca_file)}"]
        options += [] if self.verify else ["ssl_cert_reqs=none"]
        return "?" + "&".join(options) if options else ""


def parse(url: str) -> Address:
    """Take the URL of a Redis apart.

    Raises ValueError with one sentence that quotes neither a password nor anything that may hold one.
    """
    scheme, separator, rest = url.strip().partition("://")
    if not separator or scheme.lower() not in _SCHEMES:
        raise ValueError(f"a Redis URL begins with one of {', '.join(f'{name}://' for name in _SCHEMES)}")
    scheme = scheme.lower()
    kind, tls = _SCHEMES[scheme]
    if "#" in rest:
        raise ValueError("a Redis URL has no #fragment; a # in a password is written %23")
    location, _, query = rest.partition("?")
    # A password may hold an @ as it is, a host can't.
    credentials, _, place = location.rpartition("@")
    options = _options(query, scheme)
    username, password = _credentials(credentials)
    if scheme == _UNIX:
        path = _decoded(place)
        if not path.startswith("/"):
            raise ValueError("a unix:// Redis URL names a socket by its whole path: unix:///run/redis.sock")
        db = _database(options.get("db", ""))
        return Address(kind, path=path, db=db, username=username, password=password)
    hosts, _, path = place.partition("/")
    service, db = _service_and_database(kind, path)
    return Address(
        kind,
        _nodes(hosts, kind),
        service=service,
        db=db,
        username=username,
        password=password,
        sentinel_username=options.get("sentinel_username"),
        sentinel_password=options.get("sentinel_password"),
        tls=tls,
        verify=_verify(options),
        ca_file=options.get("ssl_ca_certs"),
    )


def _options(query: str, scheme: str) -> dict[str, str]:
    kind, tls = _SCHEMES[scheme]
    allowed = (_TLS_OPTIONS if tls else set()) | (_SENTINEL_OPTIONS if kind == "sentinel" else set())
    if scheme == _UNIX:
        allowed = {"db"}
    options: dict[str, str] = {}
    for name, value in _pairs(query):
        if name not in allowed:
            takes = f"options are {', '.join(sorted(allowed))}" if allowed else "it takes none"
            # A name is quoted only if it is one: what follows a ? in a password isn't.
            known = name in _TLS_OPTIONS | _SENTINEL_OPTIONS | {"db"}
            what = f"the option {name}" if known else "an unknown option"
            raise ValueError(f"a {scheme}:// URL can't have {what}; {takes} (a ? in a password is written %3F)")
        if name in options:
            raise ValueError(f"the option {name} stands twice in the Redis URL")
        if not value:
            raise ValueError(f"the option {name} of the Redis URL is empty")
        options[name] = value
    return options


def _pairs(query: str) -> list[tuple[str, str]]:
    # A plus is a plus, as it is before the @, and not the space that it is in a web form.
    parts = [part.partition("=") for part in query.split("&") if part]
    return [(_decoded(name), _decoded(value)) for name, _, value in parts]


def _verify(options: dict[str, str]) -> bool:
    required = options.get("ssl_cert_reqs", "required")
    if required not in ("none", "required"):
        raise ValueError("ssl_cert_reqs of the Redis URL is either none or required")
    return required == "required"


def _credentials(text: str) -> tuple[str | None, str | None]:
    username, _, password = text.partition(":")
    if username and not password:
        raise ValueError("the Redis URL has a user and no password; a password alone is written :password@host")
    return _decoded(username) or None, _decoded(password) or None


def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ValueError("the %-escapes of the Redis URL are not UTF-8") from None


def _service_and_database(kind: Kind, path: str) -> tuple[str, int]:
    parts = path.rstrip("/").split("/") if path.rstrip("/") else []
    service = ""
    if kind == "sentinel":
        if not parts or not parts[0]:
            raise ValueError("the service is missing from the Redis URL: redis+sentinel://host:26379/service")
        service = _decoded(parts.pop(0))
    if len(parts) > 1:
        raise ValueError("nothing may follow the database number in a Redis URL (a / in a password is written %2F)")
    db = _database(parts[0] if parts else "")
    if kind == "cluster" and db:
        raise ValueError("a Redis cluster has only database 0")
    return service, db


def _database(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValueError("the database of a Redis URL is a number (a / in a password is written %2F)")
    return int(text)


def _nodes(hosts: str, kind: Kind) -> tuple[tuple[str, int], ...]:
    parts = hosts.split(",")
    if kind == "standalone" and len(parts) > 1:
        raise ValueError("several hosts need redis+sentinel:// or redis+cluster:// (a password stands before an @)")
    nodes = tuple(_node(part.strip(), _SENTINEL_PORT if kind == "sentinel" else _DEFAULT_PORT) for part in parts)
    if len(set(nodes)) < len(nodes):
        raise ValueError("a host stands twice in the Redis URL")
    return nodes


def _node(text: str, default_port: int) -> tuple[str, int]:
    """Take `host`, `host:port` or `[v6]:port` apart. No part of it is quoted: it may be a password without its @."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError("an IPv6 address in a Redis URL is written [address]:port")
        colon, port = rest[:1], rest[1:]
    else:
        host, colon, port = text.partition(":")
        if ":" in port:
            raise ValueError("a host of the Redis URL has two colons; an IPv6 address is written [address]:port")
    if not host or host != unquote(host) or not host.isprintable() or " " in host:
        raise ValueError("a Redis URL needs a host name or an address where the host stands")
    return host, _port(port) if colon else default_port


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 0 < int(text) < 65_536):
        raise ValueError("a port of the Redis URL is no number from 1 to 65535 (a user or password stands before an @)")
    return int(text)
