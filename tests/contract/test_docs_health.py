"""docs/explanation/health.md and queue.md: the diagram is the table, the numbers are the constants."""

from __future__ import annotations

from router.core import admission, silence
from router.core.admission import TICK_S
from router.core.health import (
    BUSY_HOLD_S,
    FIRST_BACKOFF_S,
    LEAST_RAMP_RATIO,
    MAX_BACKOFF_S,
    MAX_BUSY_HOLD_S,
    TAKING,
    Care,
    State,
    diagram,
)
from router.core.queue import TURN_WORKS
from router.core.replica import BUSY_S, SUSPECT_S
from router.core.waiting import DUE_S, WEIGHTS, Priority
from router.proxy.plane import SWEEP_S
from tests.contract.pages import DOCS, code, section, table

HEALTH = DOCS / "explanation" / "health.md"
QUEUE = DOCS / "explanation" / "queue.md"
IN_WORDS = {0.5: "twice a second", 0.1: "a tenth", 2.0: "Twice as long", 10.0: "10 parts"}


def test_the_diagram_is_drawn_from_the_table() -> None:
    assert f"```mermaid\n{diagram()}\n```" in HEALTH.read_text()


def test_every_state_is_explained_with_whether_it_takes_requests() -> None:
    rows = {code(name): takes for name, takes, _ in table(HEALTH, "Health: which replicas take requests")}
    assert set(rows) == set(State)
    assert {state for state, takes in rows.items() if takes.startswith("yes")} == TAKING


def test_the_numbers_of_health_are_those_of_the_code() -> None:
    text = " ".join(HEALTH.read_text().split())
    care = Care()
    for words in (
        f"yes, {SUSPECT_S:g} s dearer",
        f"`--health-failures` ({care.probe_failures})",
        f"costs {BUSY_S:g} s more for a second, or for Retry-After up to {MAX_BUSY_HOLD_S:g} s",
        f"comes {FIRST_BACKOFF_S:g} s after the failure",
        f"up to {MAX_BACKOFF_S:g} s.",
        f"priced as if it had {IN_WORDS[LEAST_RAMP_RATIO]} of its speed",
        f"`--slow-start-s` ({care.slow_start_s:g})",
        f"limit = {silence.SILENT_S:g} s + {silence.SLACK:g} x the predicted prefill",
        f"{silence.ANSWER_SLACK:g} x the longest of late on top ({silence.UNKNOWN_ANSWER_S:g} s before",
        f"{IN_WORDS[silence.MUTE_RATIO]}: out",
    ):
        assert words in text, words
    assert BUSY_HOLD_S == 1.0
    assert f"{IN_WORDS[SWEEP_S].capitalize()} each replica" in text


def test_the_numbers_of_the_queue_are_those_of_the_code() -> None:
    text = " ".join(QUEUE.read_text().split())
    assert WEIGHTS[Priority.INTERACTIVE] / WEIGHTS[Priority.BATCH] == 10.0
    for words in (
        f"`--queue-depth-s` ({admission.Rules().depth_s:g})",
        f"`--max-queue-wait-s` ({admission.Rules().max_wait_s:g})",
        f"`--max-queued-requests` ({admission.Rules().max_requests})",
        f"is due {DUE_S:g} s after it came, half the work after half the time",
        f"as much but for {TURN_WORKS:g} requests of usual work are equal",
        f"{IN_WORDS[10.0]} interactive, one part batch",
        f"every {TICK_S * 1000:g} ms",
        f"At each look, {admission.RETRIES} of those that wait",
    ):
        assert words in text, words


def test_every_way_out_of_the_queue_is_told() -> None:
    assert "Retry-After" in section(QUEUE, "Who is turned away")
