"""A request's line, field by field."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

from router import __version__
from router.adapters.recording.keyed import KEY_BYTES, Keyed
from router.adapters.recording.lines import MARK, MOST_NAMES, Line, Lines, Opening
from router.core.fleet import Fleet
from router.core.misses.types import TurnAccount
from router.core.types import EngineReport, Prompt, RoutingRequest, Usage
from tests.adapters.records import record
from tests.contract.pages import DOCS, blocks, code, table

KEY = bytes(range(KEY_BYTES))
PROMPT = Prompt([11, 12, 13], [512, 1024, 2000], [], None)
TURN = TurnAccount("s-1", 3, 30.0, 480, 464, 0, None, None)


def lines() -> Lines:
    return Lines(KEY, started_s=900.0, started_at_s=1_000_000_000.0)


def request(**fields: Any) -> RoutingRequest:
    whole: dict[str, Any] = {"model": "m", "shape": "chat", "prompt": PROMPT, "body_bytes": 1}
    return RoutingRequest(**(whole | fields))


def said(of: Lines, asked: RoutingRequest, reads: int = 0, **fields: Any) -> dict[str, Any]:
    line = of.line(record(**fields), asked, reads)
    assert line is not None
    assert line.endswith(b"}\n")
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_whole_line() -> None:
    keyed = Keyed(KEY)
    shown = said(lines(), request(), turn=TURN)
    assert b64decode(shown.pop("hashes")) == keyed.hashes([11, 12, 13])
    assert shown == {
        "timestamp": 98_500,
        "input_length": 500,
        "output_length": 20,
        "hash_ids": [0],
        "finish_reason": "stop",
        "model": keyed.name("m"),
        "replica": keyed.name("r-1"),
        "reason": "warm",
        "status": 200,
        "ends": [128, 256, 500],
        "queued_s": 0.0,
        "total_s": 1.5,
        "ttft_s": 0.25,
        "cached": 464,
        "session": keyed.session("s-1"),
        "turn": 3,
    }


def test_what_an_engine_does_not_say_is_estimated_or_left_out() -> None:
    shown = said(lines(), request(), reads=17, usage=Usage(), ttft_s=None)
    assert (shown["input_length"], shown["output_length"], shown["finish_reason"]) == (500, 17, None)
    assert shown.keys().isdisjoint({"cached", "ttft_s", "session", "turn"})


def test_a_clients_own_session_is_the_same_in_every_worker() -> None:
    hinted = request(session=77, session_is_explicit=True)
    first = said(lines(), hinted, turn=TURN)
    other = said(lines(), hinted, turn=TurnAccount("s-2", 1, None, 0, 0, 0, None, None))
    assert first["session"] == other["session"] != Keyed(KEY).session("s-1")
    assert said(lines(), request(session=77), turn=TURN)["session"] == Keyed(KEY).session("s-1")


def test_a_prompt_without_a_key_has_no_hashes() -> None:
    shown = said(lines(), request(prompt=None))
    assert (shown["hashes"], shown["ends"], shown["hash_ids"]) == ("", [], [0])


def test_what_reached_no_replica_or_came_before_is_not_recorded() -> None:
    assert lines().line(record(decision=None), request(), 0) is None
    assert lines().line(record(ended_s=901.0, total_s=1.5), request(), 0) is None


def test_pseudonyms_do_not_grow_with_the_names_that_clients_think_of() -> None:
    of = lines()
    names = [said(of, request(), model=f"m{number}")["model"] for number in range(MOST_NAMES + 10)]
    assert said(of, request(), model="m0")["model"] == names[0]


def test_the_first_line_says_what_the_engines_have_said() -> None:
    fleet = Fleet()
    for name in ("a", "b"):
        fleet.add(name)
    bare = {"warmroute_recording": 1, "started": "2001-09-09T01:46:40Z", "version": __version__, "replicas": 2}
    opening = lines().opening(fleet)
    assert opening.startswith(MARK)
    assert json.loads(opening) == bare
    fleet.observe_engine("a", EngineReport(kv_tokens=3_000, block_tokens=32), 0.0)
    fleet.observe_engine("b", EngineReport(kv_tokens=2_000, block_tokens=32), 0.0)
    assert json.loads(lines().opening(fleet)) == bare | {"block_tokens": 32, "kv_tokens": 2_000}


PAGE = DOCS / "how-to" / "record-traffic.md"


def test_every_field_is_documented_and_every_one_documented_exists() -> None:
    assert [code(name) for name, _ in table(PAGE, "What is in it")] == list(Line.__struct_fields__)


def test_the_first_line_is_quoted_with_all_its_fields() -> None:
    (quoted,) = [block.text for block in blocks(PAGE) if block.language == "json"]
    assert quoted.startswith(MARK.decode())
    assert list(json.loads(quoted)) == list(Opening.__struct_fields__)
