"""The last decisions, newest first, and no more than are kept."""

from router.adapters.decision_log import KEPT, DecisionLog
from tests.adapters.records import record


def test_the_newest_comes_first_and_the_oldest_goes() -> None:
    log = DecisionLog()
    for number in range(KEPT + 5):
        log.request_finished(record(request_id=str(number)))
    kept = log.latest()
    assert len(kept) == KEPT
    assert (kept[0].request_id, kept[-1].request_id) == (str(KEPT + 4), "5")
    assert [entry.request_id for entry in log.latest(2)] == [str(KEPT + 4), str(KEPT + 3)]


def test_a_request_without_a_decision_is_none() -> None:
    log = DecisionLog()
    log.request_finished(record(decision=None))
    assert log.latest() == []
