from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.health import FIRST_BACKOFF_S, MAX_BACKOFF_S, TRANSITIONS, Care, Event, Health, State, diagram
from router.core.types import FAILURES, OutcomeKind


def ready(care: Care | None = None, now: float = 0.0) -> Health:
    health = Health(care)
    health.succeeded(now)
    assert health.state is State.READY
    return health


def state_of(health: Health) -> State:
    """For a second look, which a type checker takes for the first."""
    return health.state


def test_one_failure_ejects_and_the_first_success_readmits() -> None:
    health = Health()
    health.failed(OutcomeKind.RESET, 10.0)
    assert (health.state, health.available(10.0)) == (State.EJECTED, False)
    health.succeeded(10.1)
    assert (health.state, health.since_s, health.available(10.1)) == (State.READY, 10.1, True)


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


def test_requests_that_die_together_are_one_failure() -> None:
    health = ready()
    for _ in range(50):
        health.failed(OutcomeKind.DIED, 5.0)
    assert (health.failures, health.retry_at_s) == (1, 5.0 + FIRST_BACKOFF_S)
    health.tried(6.0)
    health.failed(OutcomeKind.REFUSED, 6.0)
    assert (health.failures, health.retry_at_s) == (2, 7.0)


def test_an_answered_probe_readmits_after_a_refusal_but_not_after_resets() -> None:
    refused, resetting = Health(), Health()
    refused.failed(OutcomeKind.REFUSED, 1.0)
    resetting.failed(OutcomeKind.RESET, 1.0)
    assert refused.refusing_since_s == 1.0
    assert refused.probed(2.0)
    assert refused.up
    assert not resetting.probed(2.0)
    assert resetting.state is State.EJECTED


def test_a_failed_probe_makes_suspect_and_as_many_as_are_allowed_eject() -> None:
    health = ready(Care(probe_failures=3))
    assert [health.missed(float(second)) for second in (1, 2, 3)] == [False, False, True]
    assert health.state is State.EJECTED
    assert health.probed(4.0)
    health.missed(5.0)
    assert (health.state, health.up) == (State.SUSPECT, True)
    assert not health.probed(6.0), "it was never out"
    assert state_of(health) is State.READY
    assert not health.missed(7.0), "counted from one again"


def test_a_new_replica_that_fails_its_first_probe_waits_outside() -> None:
    health = Health()
    assert health.missed(1.0)
    assert health.state is State.EJECTED
    assert health.probed(2.0)


def test_silence_makes_suspect_then_ejects_and_no_probe_readmits() -> None:
    health = ready()
    assert not health.silent(10.0, mute=False)
    assert (health.state, health.up) == (State.SUSPECT, True)
    assert health.silent(20.0, mute=True)
    assert health.state is State.EJECTED
    assert not health.probed(21.0), "a wedged engine answers probes"
    health.succeeded(22.0)
    assert state_of(health) is State.READY


def test_a_new_process_starts_anew() -> None:
    health = ready()
    health.failed(OutcomeKind.DIED, 1.0)
    health.restarted(1.2)
    assert (health.state, health.failures, health.cause) == (State.JOINING, 0, None)
    steady = ready()
    steady.restarted(1.0)
    assert steady.state is State.READY


def test_draining_takes_nothing_whatever_the_evidence() -> None:
    health = ready()
    health.drain(1.0)
    health.failed(OutcomeKind.REFUSED, 2.0)
    assert not health.probed(50.0)
    health.succeeded(60.0)
    assert (health.state, health.available(100.0)) == (State.DRAINING, False)
    health.undrain(101.0)
    assert (health.state, health.available(101.0)) == (State.JOINING, True)


def test_back_pressure_is_no_failure_and_ends_no_streak() -> None:
    health = Health()
    health.failed(OutcomeKind.DIED, 1.0)
    health.pushed_back(2.0, None)
    assert health.failures == 1
    assert health.busy_until_s == 3.0
    health.pushed_back(2.0, 3600.0)
    assert health.busy_until_s == 12.0


def test_a_replica_that_comes_back_grows_to_its_share() -> None:
    care = Care(slow_start_s=10.0)
    ready(care, now=0.0)
    health = ready(care, now=1.0)
    assert health.ramp_ratio(1.0) == 1.0, "all are new"
    health.failed(OutcomeKind.REFUSED, 100.0)
    health.succeeded(200.0)
    ramp = [round(health.ramp_ratio(200.0 + passed), 2) for passed in (0, 0.5, 5, 9.9, 10)]
    assert ramp == [0.1, 0.1, 0.5, 0.99, 1.0]
    care.slow_start_s = 0.0
    assert health.ramp_ratio(205.0) == 1.0, "it was turned off meanwhile"


def test_a_suspect_that_is_cleared_had_never_stopped() -> None:
    care = Care()
    ready(care, now=0.0)
    health = ready(care, now=100.0)
    assert health.ramp_ratio(111.0) == 1.0
    health.missed(112.0)
    health.probed(113.0)
    assert health.ramp_ratio(113.0) == 1.0


EVIDENCE = st.one_of(
    st.tuples(st.just("failed"), st.sampled_from(sorted(FAILURES))),
    st.tuples(st.sampled_from(["succeeded", "probed", "missed", "restarted", "drain", "undrain", "tried"])),
    st.tuples(st.just("silent"), st.booleans()),
)


@given(st.lists(st.tuples(EVIDENCE, st.floats(0, 20)), max_size=40))
def test_any_history_leaves_a_health_that_makes_sense(history: list[tuple[tuple[object, ...], float]]) -> None:
    health, now = Health(), 0.0
    for (name, *arguments), passed in history:
        now += passed
        before = health.state
        call = getattr(health, str(name))
        _ = call(now, *arguments) if name == "silent" else call(*arguments, now)
        assert health.state is before or health.state in TRANSITIONS[before].values()
        assert health.up == (health.state in {State.JOINING, State.READY, State.SUSPECT})
        assert health.retry_at_s <= now + MAX_BACKOFF_S
        assert 0 < health.ramp_ratio(now) <= 1
    if health.state is State.EJECTED:
        assert health.available(now + MAX_BACKOFF_S), "a replica is never out for ever"
        health.succeeded(now)
        assert state_of(health) is State.READY


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)))
def test_every_event_is_an_order_or_evidence_in_every_state(state: State, event: Event) -> None:
    then = TRANSITIONS[state].get(event)
    if event is Event.REMOVED:
        assert then is (None if state is State.GONE else State.GONE)
    if state is State.GONE:
        assert then is None


def test_the_diagram_shows_every_transition_but_removals() -> None:
    drawn = diagram()
    for state, events in TRANSITIONS.items():
        for event, then in events.items():
            if then is not State.GONE:
                line = next(line for line in drawn.splitlines() if line.strip().startswith(f"{state} --> {then}:"))
                assert event in line
