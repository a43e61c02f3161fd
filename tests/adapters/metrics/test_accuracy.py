from router.core.types import Usage
from tests.adapters.metrics.shown import Shown
from tests.adapters.records import decision, record


def test_exact_near_and_neither() -> None:
    shown = Shown()
    for predicted, reported in ((64, 64), (64, 80), (64, 48), (64, 96), (64, None)):
        answered = record(decision=decision(matched_tokens=predicted), usage=Usage(100, reported, 1, "stop"))
        shown.collector.request_finished(answered)
    shown.collector.request_finished(record(status=500))
    shown.collector.request_finished(record(decision=None))
    names = ("reported", "exact", "near")
    assert [shown.value(f"warmroute_{name}_predictions_total", replica="r-1") for name in names] == [4, 1, 3]
    assert shown.collector.accuracy.describe("r-1") == {
        "reported_requests": 4, "exact_ratio": 0.25, "within_a_block_ratio": 0.75,
    }  # fmt: skip
    shown.collector.forget("r-1")
    assert shown.collector.accuracy.describe("r-1")["exact_ratio"] is None
