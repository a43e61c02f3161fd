"""The door: who may come in, how often, and what every client connection is held to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from ipaddress import ip_network
from typing import Protocol

import xxhash

from router.core.allowance import Allowance, ClientKey, Denial, Standing
from router.core.types import Usage
from router.proxy.cors import Cors
from router.proxy.errors import RETRY_AFTER_S, RouterError, error_body
from router.proxy.forwarded import Forwarded
from router.proxy.headers import CREDENTIALS, answer_head
from router.proxy.incoming import Incoming

MAX_FIELDS = 256
"""Header fields of one request: the work that a head costs grows with their number. Clients send about twenty."""

NO_TENANT = 0

_BEARER = b"bearer "
_CHALLENGE = b'www-authenticate: Bearer realm="warmroute"\r\n'


@dataclass(frozen=True, slots=True)
class DoorRules:
    """What the settings say of the door, keys aside."""

    max_head_bytes: int = 65_536
    max_url_bytes: int = 8_192
    head_timeout_s: float = 20.0
    body_timeout_s: float = 30.0
    max_connections: int = 20_000
    trusted_proxies: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    tenant_headers: tuple[bytes, ...] = ()
    """In lower case; the first present wins."""


class Receiving(Protocol):
    """A client connection in the middle of a request that has not come whole yet."""

    def check_receiving(self, now: float) -> None:
        """Refuse the request if nothing has come of it for too long."""


class Pass:
    """What a request was let in with. It is `finished` once; until then it counts as under way."""

    __slots__ = ("_allowance", "_clock", "client", "lines", "tenant")

    def __init__(
        self,
        client: str = "",
        tenant: int = NO_TENANT,
        lines: bytes = b"",
        allowance: Allowance | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.client = client
        """The key's name; empty where no keys are asked for."""
        self.tenant = tenant
        """Hash of whoever has a fair share of the queue; 0: nobody in particular."""
        self.lines = lines
        """Header lines for the answer, whoever gives it (see `headers.answer_head`)."""
        self._allowance = allowance
        self._clock = clock

    def finished(self, tokens: int) -> None:
        """The request is over, and has used so many tokens (see `tokens_used`)."""
        allowance, self._allowance = self._allowance, None
        if allowance is not None and self._clock is not None:
            allowance.finish(self._clock(), tokens)


OPEN = Pass()
"""Of requests at a door that asks nothing. It counts nothing, so that all can share it."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not let in."""

    error: RouterError
    answer: Pass
    """Name and header lines for the refusal; it counts nothing."""
    message: str | None = None
    """In place of the error's own."""
    retry_after_s: float | None = None


def tokens_used(usage: Usage, prompt_tokens: int, reads: int) -> int:
    """Return the tokens to charge for an answer: the engine's count, or where it gave none the router's guess.

    `prompt_tokens`: as estimated when the request was routed, 0 if it never was. `reads`: pieces in which the answer
    came, which for a stream is about one a token.
    """
    prompt = prompt_tokens if usage.prompt_tokens is None else usage.prompt_tokens
    return prompt + (reads if usage.completion_tokens is None else usage.completion_tokens)


class _Known:
    """One key in force."""

    __slots__ = ("allowance", "digest", "limited", "name", "tenant")

    def __init__(self, key: ClientKey, allowance: Allowance) -> None:
        self.name = key.name
        self.digest = key.digest
        self.tenant = tenant_of(key.name if key.tenant is None else key.tenant)
        self.allowance = allowance
        limits = key.limits
        self.limited = bool(limits.requests_per_minute or limits.tokens_per_minute or limits.concurrent_requests)


class Door:
    """What all client connections of a router share."""

    def __init__(self, clock: Callable[[], float], rules: DoorRules | None = None) -> None:
        self._clock = clock
        self._known: dict[bytes, _Known] | None = None
        self.allowances: dict[str, Allowance] = {}
        """By the key's name; they outlive a change of the keys."""
        self.receiving: set[Receiving] = set()
        """Connections whose request has come in part."""
        self.configure(rules or DoorRules())

    def configure(self, rules: DoorRules) -> None:
        """Take rules; those for whole connections hold for new ones."""
        self.rules = rules
        self.cors = Cors(rules.cors_origins)
        self._proxies = tuple(map(ip_network, rules.trusted_proxies))
        self._look_at_all()

    def take_keys(self, keys: Iterable[ClientKey] | None) -> None:
        """Take the keys that open from now on; None: no keys are asked for. What each has used is kept by its name."""
        known: dict[bytes, _Known] = {}
        for key in keys or ():
            allowance = self.allowances.setdefault(key.name, Allowance(key.limits))
            allowance.limits = key.limits
            known[key.digest] = _Known(key, allowance)
        self._known = None if keys is None else known
        self._forget_unused()
        self._look_at_all()

    def _look_at_all(self) -> None:
        self.asks = self._known is not None or self.cors.on or bool(self.rules.tenant_headers)
        """Whether `admit` has anything to do."""

    def _forget_unused(self) -> None:
        now = self._clock()
        names = {known.name for known in (self._known or {}).values()}
        for name in [name for name, used in self.allowances.items() if name not in names and used.unused(now)]:
            del self.allowances[name]

    def knows(self, fields: Mapping[bytes, bytes]) -> bool:
        """Tell whether a head has a key that opens; also where none is asked for."""
        return self._known is None or self._find(fields, self._known) is not None

    def admit(self, incoming: Incoming) -> Pass | Refusal:
        """Let a request in and count it, or say why not. Its head is complete; its body need not have come."""
        fields = incoming.fields
        lines = self.cors.lines(fields.get(b"origin"))
        if self._known is None:
            return Pass("", self._tenant_by_header(incoming), lines)
        known = self._find(fields, self._known)
        if known is None:
            return Refusal(RouterError.UNAUTHORIZED, Pass(lines=lines + _CHALLENGE))
        if not known.limited:
            return Pass(known.name, known.tenant, lines)
        now = self._clock()
        denial = known.allowance.admit(now)
        lines += _limit_lines(known.allowance, now)
        if denial is None:
            return Pass(known.name, known.tenant, lines, known.allowance, self._clock)
        message = _sentence(known.name, denial)
        answer = Pass(known.name, known.tenant, lines)
        return Refusal(RouterError.RATE_LIMITED, answer, message, denial.wait_s)

    def _find(self, fields: Mapping[bytes, bytes], known: Mapping[bytes, _Known]) -> _Known | None:
        """Return the key that a head has.

        Found by the digest of what came: how long that takes tells of digests, and nobody can make one up that shares
        its beginning with another.
        """
        for name in _KEY_FIELDS:
            value = fields.get(name)
            if value is None:
                continue
            if name == b"authorization":
                if value[:7].lower() != _BEARER:
                    continue
                value = value[7:]
            digest = sha256(value.strip()).digest()
            found = known.get(digest)
            if found is not None and compare_digest(found.digest, digest):
                return found
        return None

    def _tenant_by_header(self, incoming: Incoming) -> int:
        name = incoming.first_of(self.rules.tenant_headers)
        return NO_TENANT if name is None else tenant_of(name)

    def forwarded(self, peer: str | None, proto: str) -> Forwarded:
        """Return what engines are told of where a connection comes from."""
        return Forwarded(peer, proto, self._proxies)

    def sweep(self, now: float) -> None:
        """Refuse requests that have come in part and do not go on."""
        for connection in list(self.receiving):
            connection.check_receiving(now)


_KEY_FIELDS = (b"authorization", *sorted(CREDENTIALS - {b"authorization"}, reverse=True))


def tenant_of(name: str) -> int:
    """Return the hash under which a tenant is known: never 0, and the same on every router."""
    return xxhash.xxh3_64_intdigest(b"tenant\0" + name.encode()) or 1


def _sentence(name: str, denial: Denial) -> str:
    what = denial.kind if denial.kind == "concurrent requests" else f"{denial.kind} a minute"
    return f"The limit of {denial.limit} {what} of key {name} is reached. Try again in {_duration(denial.wait_s)}."


def _limit_lines(allowance: Allowance, now: float) -> bytes:
    lines = b""
    for kind, standing in (("requests", allowance.request_standing(now)), ("tokens", allowance.token_standing(now))):
        if standing is not None:
            lines += _standing_lines(kind.encode(), standing)
    return lines


def _standing_lines(kind: bytes, standing: Standing) -> bytes:
    return (
        b"x-ratelimit-limit-%b: %d\r\nx-ratelimit-remaining-%b: %d\r\nx-ratelimit-reset-%b: %b\r\n"
        % (kind, standing.limit, kind, standing.remaining, kind, _duration(standing.reset_s).encode())
    )  # fmt: skip


def _duration(seconds: float) -> str:
    """Write a time as OpenAI's headers do: 420ms, 7s, 1m0s."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest_s = divmod(math.ceil(seconds), 60)
    return f"{minutes}m{rest_s}s" if minutes else f"{rest_s}s"


def turned_away() -> bytes:
    """Return the answer to a connection too many."""
    error = RouterError.TOO_MANY_CONNECTIONS
    body = error_body(error, "/")
    headers = [(b"content-type", b"application/json"), (b"retry-after", b"%d" % RETRY_AFTER_S[error])]
    head = answer_head(error.status, headers, b"content-length: %d\r\n" % len(body), b"", close=True)
    return head + body
