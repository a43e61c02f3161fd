"""What every setting says of itself, beside its type, range and description."""

from dataclasses import dataclass

from pydantic import Field

MIB = 1024 * 1024
GIB = 1024 * MIB

HOST = Field(min_length=1, max_length=255, pattern=r"^[^\s/]+$")
PORT = Field(ge=0, le=65535)


@dataclass(frozen=True, slots=True)
class About:
    """What `--help` and the reference page say of a setting."""

    group: str
    metavar: str
    why: str  # the reason for the default
    live: bool = False  # a reload changes it in a running router; the others need a restart
