from router.core.health import FIRST_BACKOFF_S, MAX_BACKOFF_S, Health
from router.core.types import OutcomeKind


def test_one_failure_ejects_and_the_first_success_readmits() -> None:
    health = Health()
    health.failed(OutcomeKind.RESET, 10.0)
    assert not health.available(10.0)
    health.succeeded()
    assert health.up
    assert health.available(10.0)


def test_after_the_back_off_one_trial_is_let_through() -> None:
    health = Health()
    health.failed(OutcomeKind.RESET, 10.0)
    due = 10.0 + FIRST_BACKOFF_S
    assert health.available(due)
    health.tried(due)
    assert not health.available(due)
    assert health.available(due + FIRST_BACKOFF_S)


def test_the_back_off_doubles_to_its_limit() -> None:
    health, now, waits = Health(), 0.0, []
    for _ in range(8):
        health.failed(OutcomeKind.RESET, now)
        waits.append(health.retry_at_s - now)
        now = health.retry_at_s
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, MAX_BACKOFF_S, MAX_BACKOFF_S, MAX_BACKOFF_S]


def test_an_answered_probe_readmits_after_a_refusal_but_not_after_resets() -> None:
    refused, resetting = Health(), Health()
    refused.failed(OutcomeKind.REFUSED, 1.0)
    resetting.failed(OutcomeKind.RESET, 1.0)
    assert refused.refusing_since_s == 1.0
    assert refused.probed()
    assert refused.up
    assert not resetting.probed()
    assert not resetting.up


def test_back_pressure_is_no_failure_and_ends_no_streak() -> None:
    health = Health()
    health.failed(OutcomeKind.DIED, 1.0)
    health.pushed_back(2.0, None)
    assert health.failures == 1
    assert health.busy_until_s == 3.0
    health.pushed_back(2.0, 3600.0)
    assert health.busy_until_s == 12.0
