"""The command line's options for `warmroute replay`."""

from pathlib import Path
from typing import Annotated

import typer

TRAFFIC, FLEET, OUTPUT = "Traffic", "Fleet", "Output"


def replay(  # noqa: PLR0913, PLR0917 - one argument for each option
    trace: Annotated[
        str, typer.Argument(metavar="TRACE", help="A trace's file, gzip or plain; or chats:RATE, sessions/s.")
    ],
    policy: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Policies, with commas between, or all; the others' p95 is given over the first one's. "
            "[dim]\\[default: affinity,weighted-2-1-1,tree-switch,rr]",
            rich_help_panel=OUTPUT,
        ),
    ] = "",
    minutes: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            min=0.01,
            help="How much is counted. [dim]\\[default: the trace; chats 10, agents 20]",
            rich_help_panel=TRAFFIC,
        ),
    ] = None,
    warm_up: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            min=0,
            help="Before those, not counted. [dim]\\[default: 0; chats 2, agents 10]",
            rich_help_panel=TRAFFIC,
        ),
    ] = None,
    rate_scale: Annotated[
        float,
        typer.Option(
            metavar="FACTOR", min=0.001, help="How many times as fast requests come.", rich_help_panel=TRAFFIC
        ),
    ] = 1.0,
    closed: Annotated[
        bool,
        typer.Option(
            "--closed",
            help="Each session's next request comes its think time after its answer, not at its time stamp.",
            rich_help_panel=TRAFFIC,
        ),
    ] = False,
    live: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT", min=1, help="Coding agents at once. [dim]\\[default: 40]", rich_help_panel=TRAFFIC
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            metavar="NUMBER", min=1, help="Another one: other chats, or a later start.", rich_help_panel=TRAFFIC
        ),
    ] = 1,
    replicas: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT", min=1, help="Engines. [dim]\\[default: the recording's, else 8]", rich_help_panel=FLEET
        ),
    ] = None,
    kv_tokens: Annotated[
        str | None,
        typer.Option(
            metavar="TOKENS",
            help="What an engine's KV cache holds, such as 300k. [dim]\\[default: the recording's, else the profile's]",
            rich_help_panel=FLEET,
        ),
    ] = None,
    block_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS", min=1, help="Of a block, for chats: a trace has its own.", rich_help_panel=FLEET
        ),
    ] = None,
    model_profile: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="How fast engines are: a model on a GPU, as published.", rich_help_panel=FLEET
        ),
    ] = "default",
    speeds: Annotated[
        str,
        typer.Option(
            metavar="FACTORS",
            help="Speeds of the replicas in turn, such as 1,3: every second one is three times as fast.",
            rich_help_panel=FLEET,
        ),
    ] = "",
    routers: Annotated[
        int, typer.Option(metavar="COUNT", min=1, help="Routers that share what they know.", rich_help_panel=FLEET)
    ] = 1,
    sync_ms: Annotated[
        float, typer.Option(metavar="MS", min=0, help="How old what they share is.", rich_help_panel=FLEET)
    ] = 0.0,
    touch: Annotated[
        bool,
        typer.Option("--touch", help="Warmroute touches idle sessions, as serve --touch.", rich_help_panel=FLEET),
    ] = False,
    sweep: Annotated[
        str,
        typer.Option(
            metavar="SIZES",
            help="Try several: kv-tokens=200k,400k or replicas=4,8; says which is enough.",
            rich_help_panel=OUTPUT,
        ),
    ] = "",
    target_ttft_p95: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.001, help="What is enough, for --sweep.", rich_help_panel=OUTPUT),
    ] = 2.0,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the figures as JSON.", rich_help_panel=OUTPUT)
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with plots.", rich_help_panel=OUTPUT)
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT", min=1, help="Runs at a time. [dim]\\[default: one a core]", rich_help_panel=OUTPUT
        ),
    ] = None,
) -> int:
    """Replay recorded traffic through Warmroute and other routers' policies over simulated engines, and compare."""
    from router.app.replay.asked import Asked
    from router.app.replay.command import run_replay

    asked = Asked(
        source=trace,
        policies=policy,
        replicas=replicas,
        kv_tokens=kv_tokens,
        block_tokens=block_tokens,
        model_profile=model_profile,
        rate_scale=rate_scale,
        closed=closed,
        live=live,
        seed=seed,
        minutes=minutes,
        warm_up_minutes=warm_up,
        speeds=speeds,
        routers=routers,
        sync_ms=sync_ms,
        touch=touch,
        sweep=sweep,
        target_ttft_p95_s=target_ttft_p95,
        jobs=jobs,
        json=json,
        html=html,
    )
    return run_replay(asked)
