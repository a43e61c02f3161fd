"""The demo from start to end: fleet, router, chats, table, and what to do next."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from router.app.demo.chats import MODEL, Outcome, Pace, drive
from router.app.demo.pooled import pooled_hit_ratio
from router.app.demo.processes import DemoFailed, RouterUrls, router, simulated_fleet
from router.app.demo.report import Result, result_of, table, verdicts
from router.app.settings.model import Settings
from router.sim.types import EngineConfig
from router.sim.workload import ChatWorkload

POLICIES = {"Warmroute": "affinity", "round robin": "round-robin"}

TIME_SCALE = 5.0
"""Simulated replicas run five times faster than life: 25 s show two minutes, and two cores keep up."""
THINK_RATIO = 0.2
"""Users think a fifth of what they do in the chat workload, so that most chats get far within two minutes."""
SESSIONS_PER_S_PER_REPLICA = 0.6
"""New chats each simulated second: replicas are busy under round robin, and not yet swamped."""
STREAM_INTERVAL_TOKENS = 16
"""Tokens per chunk. The demo's client is a plain Python one and shares the machine with everything else."""
SEED = 7
FEWEST_ANSWERS = 2  # below that there are no quantiles


@dataclass(frozen=True, slots=True)
class Plan:
    """What the user asked for."""

    replicas: int
    seconds: float
    """Of each policy, on the wall."""
    keep: bool


def run_demo(plan: Plan, console: Console) -> int:
    """Runs the demo; the exit code is 1 when a request failed.

    DemoFailed when a process does not start or next to nothing was answered.
    """
    _end_on_signals()
    console.print(
        f"Multi-turn chats for {plan.seconds:g} s through each policy, each time over {plan.replicas} cold simulated "
        f"replicas at {TIME_SCALE:g} times life's speed."
    )
    with contextlib.ExitStack() as kept:
        results: dict[str, Result] = {}
        failures: list[str] = []
        urls: RouterUrls | None = None
        for label, policy in POLICIES.items():
            stays = plan.keep and policy == "affinity"
            with contextlib.ExitStack() as processes:
                running, fleet = processes.enter_context(_router_over_cold_fleet(plan, policy, stays))
                watched = {"router": f"{running.clients}/livez", "replicas": f"{fleet[0]}/health"}
                outcome = _chat(running.clients, watched, label, plan, console)
                if stays:
                    urls = running
                    kept.push(processes.pop_all())
            failures += outcome.failures
            results[label] = _result(outcome, plan)
        _report(results, failures, console)
        if urls is None:
            console.print("Keep it running: [bold]make demo KEEP=1[/] or [bold]warmroute demo --keep[/]")
        else:
            _serve_until_interrupted(urls, console)
    return 1 if failures else 0


@contextlib.contextmanager
def _router_over_cold_fleet(plan: Plan, policy: str, stays: bool) -> Iterator[tuple[RouterUrls, list[str]]]:
    """The router's URLs and the replicas'."""
    simulated = ["--model", MODEL]
    simulated += ["--time-scale", str(TIME_SCALE), "--stream-interval", str(STREAM_INTERVAL_TOKENS)]
    defaults = Settings()
    port, admin_port = (_free(defaults.port), _free(defaults.admin_port)) if stays else (0, 0)
    options = ["--policy", policy, "--port", str(port), "--admin-port", str(admin_port)]
    options += ["--prefill-tokens-per-s", str(EngineConfig().prefill_tokens_per_s * TIME_SCALE)]
    with (
        simulated_fleet(plan.replicas, simulated) as fleet,
        router(fleet, options) as urls,
    ):
        yield urls, fleet


def _free(port: int) -> int:
    """The port, or 0 (any) when it is taken."""
    try:
        with socket.create_server(("127.0.0.1", port)):
            return port
    except OSError:
        return 0


def _chat(url: str, watched: dict[str, str], label: str, plan: Plan, console: Console) -> Outcome:
    simulated_s = plan.seconds * TIME_SCALE
    workload = ChatWorkload(SESSIONS_PER_S_PER_REPLICA * plan.replicas, simulated_s, SEED)
    pace = Pace(wall_per_workload_s=1 / TIME_SCALE, wall_per_think_s=THINK_RATIO / TIME_SCALE)
    bar = Progress(
        TextColumn("{task.description:<12}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[said]}"),
        console=console,
    )
    started_s = time.monotonic()
    with bar:
        task = bar.add_task(label, total=plan.seconds, said="")

        def tell(outcome: Outcome) -> None:
            said = f"{len(outcome.answers)} requests, hit rate {outcome.hit_ratio:.2f}"
            bar.update(task, completed=time.monotonic() - started_s, said=said)

        outcome = asyncio.run(drive(url, workload.sessions(), pace, plan.seconds, tell, watched=watched))
        bar.update(task, completed=plan.seconds)
    return outcome


def _result(outcome: Outcome, plan: Plan) -> Result:
    if len(outcome.answers) < FEWEST_ANSWERS:
        why = outcome.failures[0] if outcome.failures else "give the demo more --seconds"
        raise DemoFailed(f"only {len(outcome.answers)} requests were answered: {why}")
    engine = EngineConfig()
    pooled = pooled_hit_ratio(outcome.answers, plan.replicas * engine.kv_tokens, engine.block_tokens)
    return result_of(outcome, plan.replicas, pooled, TIME_SCALE)


def _report(results: dict[str, Result], failures: list[str], console: Console) -> None:
    console.print(table(results))
    console.print(f"Seconds are those of the simulated replicas: the client's own times {TIME_SCALE:g}.", style="dim")
    for verdict in verdicts(*(results[label] for label in POLICIES)):
        console.print(f"Warmroute: {verdict}")
    if failures:
        console.print(f"[red]{len(failures)} requests failed[/], the first: {failures[0]}")


def _serve_until_interrupted(urls: RouterUrls, console: Console) -> None:
    """The router and its fleet stay until Ctrl-C, SIGINT from elsewhere, or another signal that ends the demo."""
    with contextlib.suppress(KeyboardInterrupt):
        _say_where(urls, console)
        threading.Event().wait()


def _say_where(urls: RouterUrls, console: Console) -> None:
    console.print(
        f"\nRunning until Ctrl-C, or `kill {os.getpid()}`:\n"
        f"  clients  {urls.clients}/v1    any OpenAI client: base_url={urls.clients}/v1, any api_key\n"
        f"  admin    {urls.admin}/  in a browser; and /metrics, /api/overview, /api/decisions\n"
        f"  try it   curl {urls.clients}/v1/chat/completions -H 'content-type: application/json' "
        f"""-d '{{"model": "{MODEL}", "messages": [{{"role": "user", "content": "Hello"}}], "max_tokens": 20}}'\n"""
        f"The replicas go on at {TIME_SCALE:g} times life's speed: times in the dashboard, `warmroute top` and the "
        f"API are the wall's, 1/{TIME_SCALE:g} of those in the table above, and rates {TIME_SCALE:g} times as high.",
        highlight=False,
        soft_wrap=True,
    )


def _end_on_signals() -> None:
    """A terminal that closes and a supervisor that stops end the child processes too.

    A script's background job starts with SIGINT ignored, and Python then leaves it so: here it ends the demo as well.
    """

    def leave(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    signal.signal(signal.SIGINT, signal.default_int_handler)
