"""What two turns show: the line of the runbook with its numbers, and each way in which it can go wrong."""

from __future__ import annotations

from typing import Any

import pytest

from router.app.doctor.asking import Reply
from router.app.doctor.engines import Engine
from router.app.doctor.findings import Check, Finding, Level
from router.app.doctor.page import Counters
from router.app.doctor.requests import Turn, read_turn
from router.app.doctor.two_turns import Evidence
from router.app.doctor.verdict import judge
from tests.app.doctor.seen import answer, engine, found, page, place, row

HOME, OTHER = "r-00000001", "r-00000002"
SIXTEENS = page(('block_size="32"', 'block_size="16"'))


def turn(prompt: int, cached: int | None, replica: str | None = HOME, reason: str = "warm", matched: int = 0) -> Turn:
    details = None if cached is None else {"cached_tokens": cached}
    usage = {"prompt_tokens": prompt, "prompt_tokens_details": details}
    own = {"x-warmroute-replica": replica, "x-warmroute-decision": reason, "x-warmroute-matched-tokens": str(matched)}
    told = {"usage": usage, "choices": [{"message": {"content": "Yes."}}]}
    return read_turn(answer(told, **({} if replica is None else own)))  # type: ignore[arg-type]


def counters(queries: int, hits: int, external: int = 0, start_s: float = 1.0) -> Counters:
    return Counters(queries, hits, external, start_s)


def fleet(**fields: Any) -> list[Engine]:
    return [engine(1, page=SIXTEENS, **fields), engine(2, page=SIXTEENS)]


def verdict(
    second: Turn,
    moved: tuple[int, int] = (0, 0),
    *,
    first: Turn | None = None,
    engines: list[Engine] | None = None,
    external: int = 0,
    start_s: float = 1.0,
    all_seen: bool = True,
    elsewhere: tuple[int, int] = (0, 0),
) -> list[Finding]:
    known = fleet() if engines is None else engines
    urls = [one.place.url for one in known]
    before = dict.fromkeys(urls, counters(10_000, 5_000))
    after = dict(before)
    if urls:
        after[urls[0]] = counters(10_000 + moved[0], 5_000 + moved[1], external, start_s)
        after[urls[1]] = counters(10_000 + elsewhere[0], 5_000 + elsewhere[1])
    evidence = Evidence(first or turn(2_182, 0, reason="new"), second, before, after)
    return judge(evidence, known, all_seen)


def outcome(findings: list[Finding]) -> Finding:
    return found(findings, Check.TWO_TURNS)


def test_the_line_of_the_runbook() -> None:
    told = outcome(verdict(turn(2_230, 2_176), (2_230, 2_176)))
    assert told.level is Level.OK
    assert told.what == (
        "hits rose by 2,176 of 2,182 tokens, 136 full blocks of 16, on the same replica (r-00000001) "
        "(by the counters of all engines; the answer says the same)"
    )


def test_the_counters_alone_are_enough_on_a_quiet_fleet() -> None:
    told = outcome(verdict(turn(2_230, None), (2_230, 2_176)))
    assert (told.level, told.what.endswith("(by the counters of all engines)")) == (Level.OK, True)


def test_other_traffic_leaves_it_to_the_answer() -> None:
    told = outcome(verdict(turn(2_230, 2_176), (9_000, 8_000)))
    assert told.what.startswith("hits rose by 2,176 of 2,182 tokens, 136 full blocks of 16")
    assert told.what.endswith("(as the answer says; other requests moved the counters)")


def test_other_traffic_and_an_answer_that_says_nothing_can_not_be_told() -> None:
    assert outcome(verdict(turn(2_230, None), (9_000, 8_000))).level is Level.NOTE


def test_counters_of_some_engines_prove_nothing() -> None:
    assert outcome(verdict(turn(2_230, None), (2_230, 2_176), all_seen=False)).level is Level.NOTE
    told = outcome(verdict(turn(2_230, 2_176), engines=[], all_seen=False))
    assert told.what.startswith("hits rose by 2,176 of 2,182 tokens, on the same replica")


def test_hits_of_the_answer_too() -> None:
    told = outcome(verdict(turn(2_230, 2_192), (2_230, 2_192)))
    assert "2,192 tokens, 137 full blocks of 16: all 2,182 of turn 1 and some of its answer" in told.what


def test_hits_from_the_offload() -> None:
    told = outcome(verdict(turn(2_230, 2_176), (2_230, 176), external=2_000))
    assert "136 full blocks of 16, 2,000 of them from the offload, on the same" in told.what


def test_a_template_may_close_the_last_block_differently() -> None:
    assert outcome(verdict(turn(2_230, 2_160), (2_230, 2_160))).level is Level.OK
    assert outcome(verdict(turn(2_230, 2_144), (2_230, 2_144))).level is Level.WARNING


@pytest.mark.parametrize(
    ("reason", "level", "change"),
    [
        ("policy", Level.PROBLEM, "--policy affinity"),
        ("new", Level.PROBLEM, "rewrite bodies"),
        ("session", Level.PROBLEM, "session header"),
        ("spilled", Level.WARNING, "quieter"),
        ("failover", Level.WARNING, "replica-state"),
        ("drained", Level.WARNING, "done"),
        ("something-new", Level.PROBLEM, "troubleshoot"),
    ],
)
def test_turn_two_went_elsewhere(reason: str, level: Level, change: str) -> None:
    told = outcome(verdict(turn(2_230, 0, OTHER, reason), (0, 0), elsewhere=(2_230, 0)))
    assert told.level is level
    assert f"from {HOME} to {OTHER}: {reason}" in told.what
    assert change in told.change


def test_what_the_router_explains_is_shown_without_ids() -> None:
    said = 'session="s-17", turn=2, cause=system-changed, history=2182, matched=0, lost=2182, message=0, role=system'
    moved = turn(2_230, 0, OTHER, "new")
    moved.reply.headers["x-warmroute-explain"] = said
    told = outcome(verdict(moved, elsewhere=(2_230, 0)))
    assert f"{OTHER}: new (cause=system-changed, lost=2182, message=0, role=system)" in told.what


@pytest.mark.parametrize(
    ("fields", "case", "why"),
    [
        ({}, {}, "evicted at once"),
        ({}, {"start_s": 2.0}, "restarted"),
        ({"identities": frozenset({(1.0,), (2.0,)})}, {}, "several engines"),
        ({"place": place(1, row(1))}, {"moved": (0, 0), "elsewhere": (2_230, 0)}, "another engine's counters"),
    ],
)
def test_hits_that_did_not_rise(fields: dict[str, Any], case: dict[str, Any], why: str) -> None:
    moved = case.pop("moved", (2_230, 0))
    told = outcome(verdict(turn(2_230, 0), moved, engines=fleet(**fields), **case))
    assert told.level is Level.PROBLEM
    assert told.what == f"hits did not rise, on the same replica ({HOME})"
    assert why in told.why


def test_hits_that_did_not_rise_for_caching_is_off() -> None:
    off = page(('enable_prefix_caching="True"', 'enable_prefix_caching="False"'))
    for cached in (0, None):  # where nothing is cached, counters and answers are silent too
        told = outcome(verdict(turn(2_230, cached), engines=[engine(1, page=off), engine(2)]))
        assert (told.level, told.why) == (Level.PROBLEM, "its prefix caching is off")


def test_hits_that_did_not_rise_for_ranks_that_nobody_knows() -> None:
    ranks = page(more='vllm:num_requests_running{engine="1",model_name="tiny"} 0.0\n')
    told = outcome(verdict(turn(2_230, 0), engines=[engine(1, page=ranks), engine(2)]))
    assert "data-parallel ranks" in told.why


@pytest.mark.parametrize(
    ("status", "change"), [(401, "OPENAI_API_KEY"), (404, "--model"), (413, "limit"), (429, "later"), (500, "log")]
)
def test_a_turn_that_failed(status: int, change: str) -> None:
    refused = Turn(answer({"error": {"message": "a secret word", "code": "some_code"}}, status))
    told = verdict(refused, first=refused)
    assert [finding.check for finding in told] == [Check.TWO_TURNS]
    assert told[0].what == f"turn 1 failed: {status} some_code"
    assert change in told[0].change


def test_an_engines_error_is_not_quoted() -> None:
    refused = Turn(answer({"error": {"message": "the prompt was: sea wind", "code": 400}}, 400))
    assert "sea wind" not in str(verdict(refused))


def test_no_answer_at_all() -> None:
    silent = Turn(Reply(failure="no answer within 20 s"))
    assert "turn 1 failed: no answer within 20 s" in outcome(verdict(silent, first=silent)).what


def test_answers_that_do_not_come_through_a_router() -> None:
    told = verdict(turn(2_230, 2_176, None), (2_230, 2_176), first=turn(2_182, 0, None))
    assert found(told, Check.ROUTER).level is Level.WARNING
    assert outcome(told).level is Level.OK
    assert "on one replica" in outcome(told).what


def test_an_admin_port_of_another_router() -> None:
    told = verdict(turn(2_230, 2_176, "r-elsewhere"), (2_230, 2_176), first=turn(2_182, 0, "r-elsewhere"))
    assert found(told, Check.ADMIN).level is Level.WARNING
    assert not [one for one in verdict(turn(2_230, 2_176), (2_230, 2_176)) if one.check is Check.ADMIN]


@pytest.mark.parametrize(("matched", "level"), [(2_176, Level.OK), (1_000, Level.NOTE)])
def test_what_the_router_expected(matched: int, level: Level) -> None:
    told = found(verdict(turn(2_230, 2_176, matched=matched), (2_230, 2_176)), Check.PREDICTED)
    assert told.level is level
