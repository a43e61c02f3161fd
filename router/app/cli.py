"""The command line: `warmroute serve`, `check-config`, `sim` and `demo`."""

import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from router import __version__
from router.app.options import with_settings
from router.app.sources import ConfigError, Effective

INTERRUPTED = 130  # what a shell reports for a command that Ctrl-C ended (128 + SIGINT)
UNUSABLE = 2

app = typer.Typer(
    name="warmroute",
    help="Sends a chat's next turn to the vLLM replica that still holds its KV blocks.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
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
    from router.app.serve import StartError, run

    try:
        return run(effective.settings)
    except StartError as error:
        raise ConfigError(str(error)) from None


@app.command(epilog=_SETTINGS_NOTE)
@with_settings
def check_config(
    effective: Effective,
    json: Annotated[bool, typer.Option("--json", help="Print JSON: value and source by setting.")] = False,
) -> int:
    """Print the effective settings and where each came from; exit 2 if they are unusable."""
    from router.app.check_config import print_settings

    print_settings(effective, Console(), json)
    return 0


@app.command(hidden=True)
def settings_reference() -> int:
    """Print docs/reference/settings.md."""
    from router.app.settings_reference import markdown

    print(markdown(), end="")
    return 0
