"""A setting in words: its value, its range, and what its field says of it."""

from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin

import annotated_types
from pydantic import ByteSize, SecretStr
from pydantic.fields import FieldInfo

from router.app.settings.about import About


def about(field: FieldInfo) -> About:
    """The field's About; every setting has one."""
    return next(item for item in field.metadata if isinstance(item, About))


def shown(value: object) -> str:
    """The value for people: lists with commas, bytes with their unit, secrets masked."""
    match value:
        case None | ():
            return "none"
        case bool():
            return "on" if value else "off"
        case tuple():
            return ",".join(map(str, value))
        case ByteSize():
            return _in_bytes(value)
        case float():
            return f"{value:g}" if value < 1e6 else f"{value:.0f}"
        case _:
            return str(value)


def as_json(value: object) -> object:
    """The value in JSON's types, secrets masked."""
    if isinstance(value, tuple):
        return list(value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def choices(field: FieldInfo) -> tuple[str, ...]:
    """The values a setting chooses from; empty for one that is free."""
    return get_args(field.annotation) if get_origin(field.annotation) is Literal else ()


def range_text(field: FieldInfo) -> str:
    """The range: `0 to 5`, `above 0 to 60`, the choices, or nothing."""
    number = _in_bytes if field.annotation is ByteSize else _in_threes
    words = [_bound(item, number) for item in field.metadata]
    return " ".join(word for word in words if word) or ", ".join(choices(field))


def _bound(item: object, number: Callable[[Any], str]) -> str:
    match item:
        case annotated_types.Ge(ge):
            return number(ge)
        case annotated_types.Gt(gt):
            return f"above {number(gt)}"
        case annotated_types.Le(le):
            return f"to {number(le)}"
        case annotated_types.Lt(lt):
            return f"to below {number(lt)}"
        case _:
            return ""


def _in_threes(number: float) -> str:
    return f"{number:,}"


def _in_bytes(number: int) -> str:
    """Exact, in the largest unit that divides it: `64MiB`, which is also how it may be written."""
    units = [("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)]
    return next((f"{number // size}{unit}" for unit, size in units if number and number % size == 0), f"{number}")


def is_secret(field: FieldInfo) -> bool:
    """Whether the setting's value must never be shown."""
    return SecretStr in (field.annotation, *get_args(field.annotation))
