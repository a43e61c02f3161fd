"""What two turns show. Pure: evidence and engines in, findings out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from router.app.doctor.engines import Engine
from router.app.doctor.findings import Check, Finding, Level, Remarks
from router.app.doctor.page import Counters
from router.app.doctor.requests import Turn
from router.app.doctor.two_turns import Evidence, risen

SAY = Remarks("two turns")

_HINT = "the router did not take turn 2 for the same conversation"
_BUSY = "on a fleet that is in use this is as it should be; run doctor again when it is quieter"
_MOVED: dict[str, tuple[Level, str, str]] = {
    "policy": (Level.PROBLEM, "another policy than affinity is in force", "--policy affinity"),
    "new": (Level.PROBLEM, _HINT, "let nothing in between rewrite bodies; one router, or several with --redis"),
    "shared": (Level.PROBLEM, _HINT, "let nothing in between rewrite bodies; one router, or several with --redis"),
    "keyless": (Level.PROBLEM, "the prompt was too short to be recognised", "let nothing in between cut bodies"),
    "unknown-shape": (Level.PROBLEM, "the router could not read the body", "let nothing in between rewrite bodies"),
    "session": (
        Level.PROBLEM,
        "a session header that doctor did not send",
        "let the proxy in between set no session header, or one that stays the same for a conversation",
    ),
    "spilled": (Level.WARNING, "its home was busier than computing again costs", _BUSY),
    "failover": (Level.WARNING, "its home was not available", "see replica-state; run doctor again when it is up"),
    "drained": (Level.WARNING, "its home is being drained", "run doctor again when it is done"),
    "last-resort": (Level.WARNING, "no replica is fit for requests", "see replica-state"),
}
"""Reason of turn 2 where it went elsewhere -> how bad that is, why, and what to do."""

_FAILED: dict[int, tuple[str, str]] = {
    401: ("the router wants a client's key", "set OPENAI_API_KEY to one"),
    403: ("the router wants a client's key", "set OPENAI_API_KEY to one"),
    404: ("no replica serves the model", "--model NAME, one that /v1/models lists"),
    413: ("something in between takes no bodies of 10 kB", "raise the proxy's limit for bodies"),
    429: ("the fleet is full, or the key's limit is reached", "run doctor again later"),
    503: ("no replica took it", "see replica-state"),
}


@dataclass(frozen=True, slots=True)
class Hits:
    """How many of turn 2's prompt tokens were cached, and who says so."""

    tokens: int
    external_tokens: int
    source: str


@dataclass(frozen=True, slots=True)
class Case:
    """All that the verdict is about."""

    evidence: Evidence
    engines: Sequence[Engine]
    hits: Hits | None
    """None: nobody says."""

    @property
    def first(self) -> Turn:
        """Turn 1."""
        return self.evidence.first

    @property
    def second(self) -> Turn:
        """Turn 2."""
        return self.evidence.second

    @property
    def engine(self) -> Engine | None:
        """The one that answered turn 2."""
        return engine_of(self.engines, self.second.replica)

    @property
    def block_tokens(self) -> int | None:
        """Tokens of its blocks."""
        known = self.engine or (self.engines[0] if self.engines else None)
        return known.block_tokens if known else None

    @property
    def expected_tokens(self) -> int:
        """Turn 1's prompt in whole blocks."""
        prompt, block = self.first.prompt_tokens or 0, self.block_tokens or 1
        return prompt // block * block


def engine_of(engines: Sequence[Engine], replica: str | None) -> Engine | None:
    """Return the engine of a replica's id."""
    return next((engine for engine in engines if replica in engine.place.ids), None)


def judge(evidence: Evidence, engines: Sequence[Engine], all_seen: bool) -> list[Finding]:
    """Say what two turns show. `all_seen`: the counters are those of all engines that may have answered."""
    case = Case(evidence, engines, _hits(evidence, all_seen))
    for number, turn in ((1, case.first), (2, case.second)):
        if not turn.reply.ok:
            return [_failed(number, turn)]
    return [*_came_through(case), _outcome(case), *_predicted(case)]


def _hits(evidence: Evidence, all_seen: bool) -> Hits | None:
    """Go by the counters where nothing but turn 2 moved them, else by what the answer itself says."""
    moved, told = risen(evidence.before, evidence.after), evidence.second.cached_tokens
    counted = moved.hits_tokens + moved.external_hits_tokens
    quiet = all_seen and bool(evidence.after) and moved.queries_tokens == (evidence.second.prompt_tokens or -1)
    if quiet and told in (None, counted):
        agree = "; the answer says the same" if told is not None else ""
        return Hits(int(counted), int(moved.external_hits_tokens), f"by the counters of all engines{agree}")
    if told is not None:
        why = "the counters could not all be read" if not all_seen else "other requests moved the counters"
        return Hits(told, 0, f"as the answer says; {why}" if not quiet else "as the answer says; the counters differ")
    return None


def _failed(number: int, turn: Turn) -> Finding:
    status = turn.reply.status
    why, change = _FAILED.get(status, ("no answer, no second turn", "see the router's log for this request"))
    return SAY.problem(Check.TWO_TURNS, f"turn {number} failed: {turn.reply.outcome}", why, change)


def _came_through(case: Case) -> Iterator[Finding]:
    listed = frozenset().union(*(engine.place.ids for engine in case.engines))
    if case.second.replica is None:
        yield SAY.warning(
            Check.ROUTER,
            "the answers have no x-warmroute-replica header",
            "they do not come through Warmroute, or a proxy in between drops its headers",
            "give --router the router's own client port",
        )
    elif listed and case.second.replica not in listed:
        yield SAY.warning(
            Check.ADMIN,
            f"the answer is of replica {case.second.replica}, which the admin port does not list",
            "it is the admin port of another router",
            "--admin of the router that --router reaches",
        )


def _outcome(case: Case) -> Finding:
    if case.first.replica != case.second.replica:
        return _elsewhere(case)
    if _caching_is_off(case):
        return _cold(case)
    if case.hits is None:
        return SAY.note(
            Check.TWO_TURNS,
            f"both turns went to {_where(case)}; whether that hit can't be told",
            "answers do not say what was cached, and the counters were moved by others or could not be read",
            "--enable-prompt-tokens-details, or run doctor when the fleet is quiet",
        )
    if case.hits.tokens >= case.expected_tokens - (case.block_tokens or 1):
        return SAY.ok(Check.TWO_TURNS, f"{_rise(case, case.hits)}, on {_where(case)} ({case.hits.source})")
    if case.hits.tokens > 0:
        return SAY.warning(
            Check.TWO_TURNS,
            f"{_rise(case, case.hits)}, on {_where(case)} ({case.hits.source}){_explained(case)}",
            "the rest was computed again: evicted in between, or rendered anew by the chat template",
            "a larger KV cache; a chat template that renders earlier turns as it did before",
        )
    return _cold(case)


def _where(case: Case) -> str:
    return f"the same replica ({case.second.replica})" if case.second.replica else "one replica"


def _rise(case: Case, hits: Hits) -> str:
    """Say how far hits rose, as in "hits rose by 2,176 of 2,182 tokens, 136 full blocks of 16"."""
    prompt, block = case.first.prompt_tokens or 0, case.block_tokens
    blocks = f", {hits.tokens // block:,} full blocks of {block}" if block else ""
    of = f"{hits.tokens:,} of {prompt:,} tokens{blocks}"
    if hits.tokens > prompt:
        of = f"{hits.tokens:,} tokens{blocks}: all {prompt:,} of turn 1 and some of its answer"
    external = f", {hits.external_tokens:,} of them from the offload" if hits.external_tokens else ""
    return f"hits rose by {of}{external}"


def _explained(case: Case) -> str:
    """Return what the router makes of the miss, where it says so."""
    return f" ({case.second.explained})" if case.second.explained else ""


def _elsewhere(case: Case) -> Finding:
    reason = case.second.reason
    level, why, change = _MOVED.get(reason, (Level.PROBLEM, f"reason: {reason}", "see docs/how-to/troubleshoot.md"))
    hits = f"; {case.hits.tokens:,} tokens were cached there" if case.hits else ""
    what = f"turn 2 went from {case.first.replica} to {case.second.replica}: {reason}{_explained(case)}{hits}"
    return Finding(level, Check.TWO_TURNS, SAY.about, what, why, change)


def _cold(case: Case) -> Finding:
    why, change = next(
        ((why, change) for holds, why, change in _COLD if holds(case)),
        ("what turn 1 left was evicted at once, or the chat template renders earlier turns anew", "a larger KV cache; "
         "compare with /v1/completions, which has no template"),
    )  # fmt: skip
    return SAY.problem(Check.TWO_TURNS, f"hits did not rise, on {_where(case)}{_explained(case)}", why, change)


def _restarted(case: Case) -> bool:
    before, after = case.evidence.before, case.evidence.after
    return any(url in before and before[url].start_s != after[url].start_s for url in after)


def _counted_elsewhere(case: Case) -> bool:
    """Tell whether the counters that turn 2 moved are of another engine than the one that is said to have answered."""
    if case.engine is None:
        return False
    others = [engine.place.url for engine in case.engines if engine is not case.engine]
    prompt = case.second.prompt_tokens or 0

    def looked_up(urls: list[str]) -> float:
        moved: Counters = risen(case.evidence.before, case.evidence.after, urls)
        return moved.queries_tokens

    return looked_up([case.engine.place.url]) < prompt <= looked_up(others)


def _caching_is_off(case: Case) -> bool:
    return _has(case, lambda engine: engine.prefix_caching is False)


def _has(case: Case, holds: Callable[[Engine], bool]) -> bool:
    return case.engine is not None and holds(case.engine)


_COLD: tuple[tuple[Callable[[Case], bool], str, str], ...] = (
    (
        _caching_is_off,
        "its prefix caching is off",
        "start vLLM without --no-enable-prefix-caching",
    ),
    (_restarted, "an engine restarted in between, and its cache is empty", "run doctor again"),
    (
        lambda case: _has(case, lambda engine: len(engine.identities) > 1),
        "several engines answer behind its address",
        "--replica for each engine",
    ),
    (
        lambda case: _has(case, lambda engine: bool(engine.page and engine.page.ranks > len(engine.place.rows) > 0)),
        "it has more data-parallel ranks than the router knows",
        "--replica URL?ranks=N",
    ),
    (_counted_elsewhere, "another engine's counters moved", "let each --replica lead to its own engine"),
)
"""Why a turn on the right replica hits nothing: the first that holds."""


def _predicted(case: Case) -> Iterator[Finding]:
    matched, hits = case.second.matched_tokens, case.hits
    if matched is None or hits is None:
        return
    told = f"the router expected {matched:,} cached tokens, and {hits.tokens:,} were"
    if abs(matched - hits.tokens) <= max(2 * (case.block_tokens or 0), hits.tokens // 10):
        yield SAY.ok(Check.PREDICTED, told)
    else:
        yield SAY.note(Check.PREDICTED, told, "how many bytes make a token is learnt from the first answers")
