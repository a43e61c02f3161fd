"""What `warmroute replay` and `warmroute advise` are both asked: the traffic, and the fleet that it is sent to."""

from typing import Annotated

import typer

TRAFFIC, FLEET, OUTPUT = "Traffic", "Fleet", "Output"

Minutes = Annotated[
    float | None,
    typer.Option(
        metavar="MINUTES",
        min=0.01,
        help="How much is counted. [dim]\\[default: the trace; chats 10, agents 20]",
        rich_help_panel=TRAFFIC,
    ),
]
WarmUp = Annotated[
    float | None,
    typer.Option(
        metavar="MINUTES",
        min=0,
        help="Before those, not counted. [dim]\\[default: 0; chats 2, agents 10]",
        rich_help_panel=TRAFFIC,
    ),
]
RateScale = Annotated[
    float,
    typer.Option(
        metavar="FACTOR", min=0.001, help="How many times as fast requests come.", rich_help_panel=TRAFFIC
    ),
]
Closed = Annotated[
    bool,
    typer.Option(
        "--closed",
        help="Each session's next request comes its think time after its answer, not at its time stamp.",
        rich_help_panel=TRAFFIC,
    ),
]
Live = Annotated[
    int | None,
    typer.Option(
        metavar="COUNT", min=1, help="Coding agents at once. [dim]\\[default: 40]", rich_help_panel=TRAFFIC
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        metavar="NUMBER", min=1, help="Another one: other chats, or a later start.", rich_help_panel=TRAFFIC
    ),
]
Replicas = Annotated[
    int | None,
    typer.Option(
        metavar="COUNT", min=1, help="Engines. [dim]\\[default: the recording's, else 8]", rich_help_panel=FLEET
    ),
]
KvTokens = Annotated[
    str | None,
    typer.Option(
        metavar="TOKENS",
        help="What an engine's KV cache holds, such as 300k. [dim]\\[default: the recording's, else the profile's]",
        rich_help_panel=FLEET,
    ),
]
BlockTokens = Annotated[
    int | None,
    typer.Option(
        metavar="TOKENS", min=1, help="Of a block, for chats: a trace has its own.", rich_help_panel=FLEET
    ),
]
ModelProfile = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="How fast engines are: a model on a GPU, as published.", rich_help_panel=FLEET
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        metavar="COUNT", min=1, help="Runs at a time. [dim]\\[default: one a core]", rich_help_panel=OUTPUT
    ),
]
