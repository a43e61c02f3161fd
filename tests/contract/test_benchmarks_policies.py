"""The ablation leaves out what it says, and the docs' tables are those that were measured, with the price as it is."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchmarks.ablation import (
    CONVERSATION,
    FORMER,
    HOLDING,
    LOADS,
    OTHERS,
    ROWS,
    TERMS,
    WHOLE,
    contender,
    policy_name,
    workload_of,
)
from benchmarks.measured import Kept, Measured, as_measured, filled, kept, pages
from benchmarks.policies import Task, measure, present
from router.core.fleet import Fleet
from router.core.ledger import Entry, Work
from router.core.policy import Ask
from router.core.price import Weights, affinity, priced
from router.core.types import EngineReport, Prompt, RoutingRequest, Score
from router.replay.plan import Plan
from router.replay.warmroute import Warmroute
from router.sim.types import EngineConfig
from tests.contract.pages import DOCS
from tests.contract.test_benchmarks import run

TERMS_PAGES = DOCS / "explanation" / "terms"


def asked(follow_up: bool) -> Ask:
    """A request on a busy fleet of two, on which every term has something to say."""
    fleet = Fleet(prior_tokens_per_s=160.0)
    for name in "ab":
        replica = fleet.add(name)
        replica.recent.add(30.0, now=0.0)
        fleet.observe_engine(name, EngineReport(kv_tokens=320, block_tokens=16))
    found: list[Ask] = []

    def note(ask: Ask) -> list[Score]:
        found.append(ask)
        return affinity(ask)

    fleet.policy = note
    fleet["a"].ledger.open(Entry(Work(320), 2.0, True, dispatched_s=0.0, expected_end_s=9.0))
    prompt = Prompt(list(range(10)), [64 * (n + 1) for n in range(10)], [], 4.0)
    fleet.explain(RoutingRequest("m", "completions", prompt, 640, streaming=True), now=1.0)
    return found[0]._replace(follow_up=follow_up)


def totals(row: str, follow_up: bool) -> list[float]:
    return [score.total_s for score in TERMS[row](asked(follow_up))]


def test_columns_are_taken_off_the_sum() -> None:
    for row in ("queue", "evicted", "streams"):
        for whole, left_s in zip(affinity(asked(True)), totals(row, True), strict=True):
            assert left_s == pytest.approx(whole.total_s - getattr(whole, f"{row}_s")), row
    busy, idle = affinity(asked(True))
    assert busy.queue_s == 2.0
    assert idle.queue_s == 0.0


def test_parts_of_the_balance_are_left_out_alone() -> None:
    whole, ask = affinity(asked(True)), asked(True)
    own_s = [score.own_s for score in whole]
    without = {row: totals(row, True) for row in ("following", "delay", "share")}
    for index, score in enumerate(whole):
        assert without["following"][index] == pytest.approx(score.total_s - Weights().following * own_s[index])
        assert without["delay"][index] < score.total_s
        assert without["share"][index] == pytest.approx(score.total_s), "a follow-up pays no share"
        assert priced(Weights(delay=0.0))(ask)[index].balance_s == pytest.approx(Weights().following * own_s[index])
    assert all(left < one.total_s for left, one in zip(totals("share", False), affinity(asked(False)), strict=True))


def test_without_own_work_queue_and_share_are_left() -> None:
    busy_s, idle_s = totals("own", True)
    streams = [score.streams_s for score in affinity(asked(True))]
    assert (busy_s - streams[0], idle_s - streams[1]) == pytest.approx((2.0, 0.0))


def test_the_former_price_is_that_of_adr_5() -> None:
    for score in OTHERS[FORMER](asked(True)):
        assert score.total_s == pytest.approx(score.queue_s + 13 * score.own_s)
    for score in OTHERS[FORMER](asked(False)):
        assert score.total_s == pytest.approx(score.queue_s + 13 * score.own_s + 13 * 1.0)  # its share is 1: the mean


def test_rows_are_what_they_are_called() -> None:
    plan = Plan(policy_name("queue"), EngineConfig(kv_tokens=100_000))
    made = contender("queue", plan, [])
    assert isinstance(made, Warmroute)
    assert made.fleet.policy is TERMS["queue"]
    assert policy_name(HOLDING) == "affinity-unheld"
    assert policy_name("rr") == "rr"


def test_it_measures_and_prints(tmp_path: Path) -> None:
    rows = ("--loads", "conversation,synthetic", "--rows", "affinity,queue,holding", "--minutes", "0.3", "--jobs", "1")
    printed, _ = run("policies", tmp_path, *rows)
    assert "absent: synthetic: it needs mooncake_synthetic_trace.jsonl.gz" in printed
    assert "without queue" in printed
    written = msgspec.json.decode((tmp_path / "figures.json").read_bytes(), type=Kept)
    found = written.loads["conversation"]
    assert {WHOLE, "queue", "holding"} <= found.keys()
    assert found[WHOLE][0]["requests"] > 20
    assert 0 < found[WHOLE][0]["hit_ratio"] < 1


def test_the_same_task_gives_the_same_figures() -> None:
    task = Task("conversation", "delay", 1, 0.2, None)
    assert measure(task) == measure(task)


def test_loads_without_their_file_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert present(LOADS, None) == ["chats:3", "chats:4", "conversation", "chats:3:decode"]
    (tmp_path / LOADS["synthetic"].file).write_bytes(CONVERSATION.read_bytes())
    assert present(["synthetic", "agents:40"], tmp_path) == ["synthetic"]
    assert "absent: agents:40" in capsys.readouterr().out
    assert workload_of(LOADS["synthetic"], 1.0, tmp_path).block_tokens == 512


def test_what_is_measured_again_is_put_beside_what_was() -> None:
    before = kept()
    one: Measured = {"conversation": {"queue": [{"hit_ratio": 0.123456789}]}}
    joined = msgspec.json.decode(as_measured(one, before.seeds, before.minutes), type=Kept)
    alike = before.weights == joined.weights
    assert joined.loads["conversation"]["queue"] == [{"hit_ratio": 0.12346}]
    assert (WHOLE in joined.loads["conversation"]) == alike
    other = msgspec.json.decode(as_measured(one, [99], before.minutes), type=Kept)
    assert other.loads.keys() == {"conversation"}
    assert other.loads["conversation"].keys() == {"queue"}


# The docs


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_the_tables_of_the_docs_are_those_that_were_measured(page: Path) -> None:
    assert "(to come)" not in page.read_text()
    assert filled(page.read_text(), kept()) == page.read_text(), "make bench-policies ARGS=--pages"


def test_they_were_measured_with_the_price_as_it_is() -> None:
    assert kept().weights == Weights()._asdict(), "make bench-policies ARGS='--traces DIR --pages'"


def test_every_term_was_left_out_of_each_load_and_has_a_page() -> None:
    assert {"conversation", "chats:4"} <= kept().loads.keys() <= LOADS.keys()
    for load, rows in kept().loads.items():
        assert set(ROWS) <= rows.keys(), load
    assert {page.stem for page in TERMS_PAGES.glob("*.md")} == {*TERMS, HOLDING, "worth"}
    for row in (*TERMS, HOLDING):
        assert f"<!-- measured: {row} -->" in (TERMS_PAGES / f"{row}.md").read_text()
