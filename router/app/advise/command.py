"""`warmroute advise`: measures, tries, recommends, writes it down; or looks whether it still holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from router.app.advise.asked import MODEL, Asked, plan_of
from router.app.advise.live import Live, read_live
from router.app.advise.shown import print_decision, print_triggers
from router.app.replay.jobs import Outcome, Progress, outcome_of, run_all
from router.app.replay.shown import output, progress_bar
from router.app.replay.workloads import Ordered, order_of
from router.app.settings.sources import ConfigError
from router.replay.advice.choice import Tried, choose
from router.replay.advice.ladder import Rung, ladder
from router.replay.advice.measured import Measured, measure
from router.replay.advice.record import Data, Decision, RecordError, Sized, facts_of, markdown, read_data
from router.replay.advice.triggers import Facts, triggers
from router.replay.demand import Workload
from router.replay.plan import Plan, Result


def run_advise(asked: Asked) -> int:
    """Advise, or check a record; 0, or 1 where a check finds that it is time to decide again.

    ConfigError: it can't be done as asked.
    """
    if asked.check is not None:
        return _check(asked, asked.check)
    if asked.record is not None and not asked.record.parent.is_dir():
        raise ConfigError(f"can't write {asked.record}: there is no directory {asked.record.parent}")
    live = read_live(asked.admin) if asked.admin else None
    decision = decide(_with_source(asked, live), live)
    print_decision(output(), decision)
    if asked.record is not None:
        _write(asked.record, markdown(decision))
    return 0


def decide(asked: Asked, live: Live | None) -> Decision:
    """Measure the traffic, try every rung, and choose."""
    sizes = asked.sizes
    ordered = order_of(asked.traffic)
    plan = plan_of(ordered, asked, live)
    result, measured = _measured(plan, ordered.workload)
    rungs = ladder(plan, measured, sizes)
    tried = _tried(rungs, result, ordered.workload, asked.traffic.jobs)
    choice = choose(tried, asked.traffic.target_ttft_p95_s)
    data = Data(
        date=datetime.now(tz=UTC).date().isoformat(),
        workload=ordered.workload.name,
        target_ttft_p95_s=asked.traffic.target_ttft_p95_s,
        fleet=_sized(plan, asked),
        recommended=choice.chosen.rung.name,
        met=choice.met,
        replayed=_facts(asked, measured),
        live=_named(live.facts, asked) if live else None,
    )
    model = asked.named_model or (live.facts.models[0] if live and live.facts.models else MODEL)
    notes = [*ordered.notes, *_too_long(result)]
    return Decision(data, measured, live.lines if live else [], tried, choice, sizes, model, asked.gpus, notes)


def _with_source(asked: Asked, live: Live | None) -> Asked:
    """Return what is asked with the traffic to replay: as given, or as the running router records it."""
    if asked.traffic.source:
        return asked
    if live is None:
        raise ConfigError("say which traffic: a trace, chats:RATE, or --admin URL of a router that records its own")
    if live.recording is None:
        raise ConfigError("the router records nothing: start it with --record FILE, or give a trace beside --admin")
    return replace(asked, traffic=replace(asked.traffic, source=live.recording))


def _measured(plan: Plan, workload: Workload) -> tuple[Result, Measured]:
    with progress_bar(Console(stderr=True), 1) as told:
        try:
            return measure(plan, workload, told)
        except ValueError as error:
            raise ConfigError(f"can't replay: {error}") from None


def _tried(rungs: Sequence[Rung], free: Result, workload: Workload, jobs: int | None) -> list[Tried]:
    """Run all rungs but the first, which was run to measure it."""
    others = [rung.plan for rung in rungs[1:]]
    with progress_bar(Console(stderr=True), len(others)) as told:
        outcomes = [outcome_of(free), *_run(others, workload, jobs, told)]
    return [Tried(rung, outcome.figures) for rung, outcome in zip(rungs, outcomes, strict=True)]


def _run(plans: Sequence[Plan], workload: Workload, jobs: int | None, told: Progress) -> list[Outcome]:
    try:
        return run_all(plans, workload, jobs, told)
    except ValueError as error:
        raise ConfigError(f"can't replay: {error}") from None


def _too_long(result: Result) -> list[str]:
    left_out = int(result.extra.get("too_long", 0))
    return [f"{left_out:,} requests fit no cache of this size and were left out"] if left_out else []


def _sized(plan: Plan, asked: Asked) -> Sized:
    engine = plan.engine
    return Sized(
        replicas=plan.replicas,
        kv_tokens=engine.kv_tokens,
        prefill_tokens_per_s=engine.prefill_tokens_per_s,
        model_profile=asked.traffic.model_profile,
        kv_token_bytes=asked.token_bytes,
    )


def _facts(asked: Asked, measured: Measured) -> Facts:
    return facts_of(measured, asked.named_model, asked.vllm_version, asked.driver)


def _named(facts: Facts, asked: Asked) -> Facts:
    """A running router's facts, and what was said beside them."""
    return Facts(
        model=asked.named_model,
        models=facts.models,
        vllm_version=asked.vllm_version or facts.vllm_version,
        driver=asked.driver,
        prompt_p95_tokens=facts.prompt_p95_tokens,
        requests_per_s=facts.requests_per_s,
        sessions_per_s=facts.sessions_per_s,
        peak_hit_ratio=facts.peak_hit_ratio,
    )


def _check(asked: Asked, record: Path) -> int:
    if asked.record is not None:
        raise ConfigError("--check looks at a record, --record writes one: give one of them")
    if bool(asked.traffic.source) == bool(asked.admin):
        raise ConfigError("--check compares a record with a trace or with --admin URL: give one of them")
    data = _read(record)
    found = triggers(*_both(asked, data))
    print_triggers(output(), data, found)
    return int(any(trigger.fired for trigger in found))


def _both(asked: Asked, data: Data) -> tuple[Facts, Facts]:
    """What was and what is, both live where there was a router to ask then, else both as they can be had."""
    if asked.admin:
        return data.live or data.replayed, _named(read_live(asked.admin).facts, asked)
    ordered = order_of(replace(asked.traffic, model_profile=data.fleet.model_profile))
    _, measured = _measured(_as_recorded(ordered, asked, data), ordered.workload)
    return data.replayed, _facts(asked, measured)


def _as_recorded(ordered: Ordered, asked: Asked, data: Data) -> Plan:
    """The fleet of the record, so that only the traffic differs; as given where something was."""
    plan, fleet, given = plan_of(ordered, asked, None), data.fleet, asked.traffic
    engine = replace(
        plan.engine,
        kv_tokens=plan.engine.kv_tokens if given.kv_tokens else fleet.kv_tokens,
        prefill_tokens_per_s=fleet.prefill_tokens_per_s,
    )
    return replace(plan, engine=engine, replicas=given.replicas or fleet.replicas)


def _read(record: Path) -> Data:
    try:
        return read_data(record.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"can't read {record}: {getattr(error, 'strerror', None) or error}") from None
    except RecordError as error:
        raise ConfigError(f"{record}: {error}") from None


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"can't write {path}: {error.strerror or error}") from None
