"""Command line options made from the settings, so that a setting is described once."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_origin

import typer
from pydantic.fields import FieldInfo

from router.app.settings.model import Settings
from router.app.settings.sources import CONFIG_VARIABLE, flag_of, load
from router.app.settings.text import about, range_text, shown

_Config = Annotated[
    Path | None,
    typer.Option(metavar="FILE", show_default=False, help=f"TOML file with settings. Also from {CONFIG_VARIABLE}."),
]


def with_settings(command: Callable[..., int]) -> Callable[..., int]:
    """The command with one option for each setting; it gets the effective settings as its first argument."""
    own = list(inspect.signature(command).parameters.values())[1:]

    def run(config: Path | None, **values: Any) -> int:
        own_values = {parameter.name: values.pop(parameter.name) for parameter in own}
        flags = {name: value for name, value in values.items() if value is not None}
        return command(load(flags, config), **own_values)

    parameters = [_parameter("config", _Config), *own]
    parameters += [_parameter(name, _option(name, field)) for name, field in Settings.model_fields.items()]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=annotation)


def _option(name: str, field: FieldInfo) -> Any:
    """The option takes text, whatever the setting's type: only the model parses, so all sources agree."""
    flag = flag_of(name)
    is_switch = field.annotation is bool
    option = typer.Option(
        f"{flag}/--no-{flag[2:]}" if is_switch else flag,
        metavar=about(field).metavar,
        help=f"{field.description} [dim]\\[{_range_and_default(field)}][/dim]",
        show_default=False,
        rich_help_panel=about(field).group,
    )
    is_list = get_origin(field.annotation) is tuple
    given: Any = bool if is_switch else list[str] if is_list else str
    return Annotated[given | None, option]


def _range_and_default(field: FieldInfo) -> str:
    limits = range_text(field)
    return f"{limits}; default: {shown(field.default)}" if limits else f"default: {shown(field.default)}"
