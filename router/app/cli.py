"""The command line: one function for each command."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Literal, NoReturn

import typer
from rich.console import Console

from router import __version__
from router.app.advise.options import advise
from router.app.replay.options import replay
from router.app.settings.options import with_settings
from router.app.settings.sources import CONFIG_VARIABLE, ConfigError, Effective
from router.sim.types import EngineConfig

INTERRUPTED = 130  # what a shell reports for a command that Ctrl-C ended (128 + SIGINT)
FAILED, UNUSABLE = 1, 2
Window = Literal["5m", "1h", "24h"]

app = typer.Typer(
    name="warmroute",
    help="Sends a chat's next turn to the vLLM replica that still holds its KV blocks.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
_ENGINE = EngineConfig()
_SETTINGS_NOTE = (
    "Every setting is also a variable WARMROUTE_NAME and a key of the TOML file, with _ for -. "
    "A flag wins over the environment, the environment over the file. Lists: a,b or JSON."
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and exits: 0 done, 1 failed, 2 cannot be run as asked, 130 interrupted."""
    try:
        code = app(args=arguments, prog_name="warmroute", standalone_mode=False)
    except typer.TyperException as error:
        code = _fail(error.format_message(), error.exit_code)
    except ConfigError as error:
        code = _fail(str(error), UNUSABLE)
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    sys.exit(code)


def _fail(message: str, code: int) -> int:
    """One line on stderr, so that it survives log collectors; nothing when the help was the message."""
    if message:
        print("warmroute:", " ".join(message.split()), file=sys.stderr)
    return code


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"warmroute {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Exists for the options of `warmroute` itself."""


@app.command(epilog=_SETTINGS_NOTE)
@with_settings
def serve(effective: Effective) -> int:
    """Run the router in front of the given replicas."""
    from router.app.process.serve import StartError
    from router.app.process.start import run

    try:
        return run(effective)
    except StartError as error:
        raise ConfigError(str(error)) from None


@app.command(epilog=_SETTINGS_NOTE)
@with_settings
def check_config(
    effective: Effective,
    json: Annotated[bool, typer.Option("--json", help="Print JSON: value and source by setting.")] = False,
) -> int:
    """Print the effective settings and where each came from; exit 2 if they are unusable."""
    from router.app.settings.check import print_settings

    print_settings(effective, Console(), json)
    return 0


@app.command()
def sim(  # noqa: PLR0913, PLR0917 - one argument for each option
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="First port; 0 takes free ones.")] = 8000,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    replicas: Annotated[
        int, typer.Option(metavar="COUNT", min=1, max=256, help="How many, on ports that follow each other.")
    ] = 1,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A served model's name; give it once for each. [dim]\\[default: sim-model]"),
    ] = None,
    kv_tokens: Annotated[
        int, typer.Option(metavar="TOKENS", min=32, help="Tokens that a replica's KV cache holds.")
    ] = _ENGINE.kv_tokens,
    prefill_tokens_per_s: Annotated[
        float, typer.Option(metavar="TOKENS", min=1, help="Prompt tokens prefilled each second.")
    ] = _ENGINE.prefill_tokens_per_s,
    time_scale: Annotated[
        float, typer.Option(metavar="FACTOR", min=0.01, help="How many times faster than life replicas run.")
    ] = 1.0,
    stream_interval: Annotated[
        int, typer.Option(metavar="TOKENS", min=1, help="Tokens in each chunk of a stream.")
    ] = _ENGINE.stream_interval,
    data_parallel: Annotated[
        int,
        typer.Option(metavar="RANKS", min=1, max=1024, help="Engines with caches of their own behind each port."),
    ] = 1,
    kv_events: Annotated[
        bool, typer.Option("--kv-events", help="Publish KV cache events on free ports, which /kv_event_sources tells.")
    ] = False,
) -> int:
    """Run simulated vLLM replicas: no GPU, no model, vLLM's HTTP interface, caching and metrics."""
    from router.sim.options import KvEventsOptions
    from router.sim.server import SimOptions, run_sim

    engine = EngineConfig(
        kv_tokens=kv_tokens, prefill_tokens_per_s=prefill_tokens_per_s, stream_interval=stream_interval
    )
    try:
        events = KvEventsOptions() if kv_events else None
        options = SimOptions(
            tuple(model or ["sim-model"]), engine, time_scale, data_parallel=data_parallel, kv_events=events
        )
        run_sim(port, replicas, options, host=host)
    except ImportError as error:
        raise ConfigError(f"--kv-events needs a package that is not installed: {error}") from None
    except (OSError, OverflowError, ValueError) as error:
        raise ConfigError(f"can't run {replicas} replicas from {host}:{port}: {error}") from None
    return 0


@app.command()
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave replicas and router running at the end.")] = False,
    seconds: Annotated[float, typer.Option(metavar="SECONDS", min=1, max=600, help="Seconds for each policy.")] = 25.0,
    replicas: Annotated[int, typer.Option(metavar="COUNT", min=2, max=16, help="Simulated replicas.")] = 4,
) -> int:
    """Send the same chats through Warmroute and through round robin, and compare."""
    from router.app.demo.processes import DemoFailed
    from router.app.demo.run import Plan, run_demo

    try:
        return run_demo(Plan(replicas, seconds, keep), Console())
    except DemoFailed as error:
        return _fail(str(error), FAILED)


app.command()(replay)
app.command()(advise)


@app.command()
def top(
    urls: Annotated[
        list[str] | None,
        typer.Argument(metavar="URL", help="Admin ports of routers. [dim]\\[default: http://127.0.0.1:9090]"),
    ] = None,
    window: Annotated[Window, typer.Option(help="What the figures are of; the keys 1, 2 and 3 change it.")] = "5m",
    interval: Annotated[float, typer.Option(metavar="SECONDS", min=0.2, max=3600, help="Between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print it once and leave.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print what /api/overview answers and leave.")] = False,
) -> int:
    """Show hit rates, what was lost, replicas and decisions, live; the token comes from WARMROUTE_ADMIN_TOKEN."""
    from router.app.terminal.top import TopOptions, run_top

    return run_top(TopOptions(urls or [], window, interval, once, json))


@app.command()
def explain(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="A request body, or one a line; - for stdin.")],
    admin: Annotated[str, typer.Option(metavar="URL", help="Admin port of the router.")] = "http://127.0.0.1:9090",
    path: Annotated[str, typer.Option(metavar="PATH", help="Where it would be sent.")] = "/v1/chat/completions",
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="LINE", help="A header of it, such as its session.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Say where a router would send a request and what would be cached; of several turns, what each one keeps."""
    from router.app.terminal.explain import ExplainOptions, run_explain

    return run_explain(ExplainOptions(files, admin, path, header or [], json))


@app.command()
def key(
    name: Annotated[str, typer.Argument(help="Name of the key, for logs and metrics.")],
    requests_per_minute: Annotated[int, typer.Option(metavar="COUNT", min=0, help="Its limit; 0: the settings'.")] = 0,
    tokens_per_minute: Annotated[int, typer.Option(metavar="TOKENS", min=0, help="Its limit; 0: the settings'.")] = 0,
    concurrent_requests: Annotated[int, typer.Option(metavar="COUNT", min=0, help="Its limit; 0: the settings'.")] = 0,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read a key that exists instead of making one.")] = False,
) -> int:
    """Make a client's key: the lines for --api-keys-file on stdout, the key itself on stderr."""
    from router.app.keys import run_key

    return run_key(name, (requests_per_minute, tokens_per_minute, concurrent_requests), stdin)


@app.command()
def doctor(
    router: Annotated[
        str, typer.Option(metavar="URL", help="The router's client port, as clients reach it.")
    ] = "http://127.0.0.1:8080",
    admin: Annotated[str, typer.Option(metavar="URL", help="Its admin port.")] = "http://127.0.0.1:9090",
    replica: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="An engine to look at beside those that the admin port names."),
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Model of the two-turn check.")] = None,
    requests: Annotated[
        bool, typer.Option("--requests/--no-requests", help="Send requests that make engines work.")
    ] = True,
    thorough: Annotated[bool, typer.Option("--thorough", help="Measure the engines' keep-alive too, in 6 s.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Check a running set-up from outside and say what to change; exit 1 if there is a problem.

    Keys are taken from OPENAI_API_KEY, WARMROUTE_ADMIN_TOKEN and WARMROUTE_ENGINE_API_KEY.
    """
    from router.app.doctor.command import run_doctor, target_of
    from router.app.doctor.examine import Extent

    target = target_of(router, admin, replica or [], model, os.environ)
    return run_doctor(target, Extent(requests, thorough), json)


@app.command()
def health(
    url: Annotated[
        str | None,
        typer.Argument(metavar="URL", help="What to ask instead, such as an engine's http://host:8000/health."),
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help=f"The router's TOML file. Also from {CONFIG_VARIABLE}.")
    ] = None,
) -> int:
    """Ask the router that the settings describe whether it is ready; exit 1 if not. For containers' health checks."""
    from router.app.health.command import run_health

    return run_health(url, config)


@app.command(hidden=True)
def settings_reference() -> int:
    """Print docs/reference/settings.md."""
    from router.app.settings.reference import markdown

    print(markdown(), end="")
    return 0
