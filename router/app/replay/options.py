"""The command line's options for `warmroute replay`."""

from pathlib import Path
from typing import Annotated

import typer

from router.app.replay.traffic_options import (
    FLEET,
    OUTPUT,
    BlockTokens,
    Closed,
    Jobs,
    KvTokens,
    Live,
    Minutes,
    ModelProfile,
    RateScale,
    Replicas,
    Seed,
    WarmUp,
)


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
    minutes: Minutes = None,
    warm_up: WarmUp = None,
    rate_scale: RateScale = 1.0,
    closed: Closed = False,
    live: Live = None,
    seed: Seed = 1,
    replicas: Replicas = None,
    kv_tokens: KvTokens = None,
    block_tokens: BlockTokens = None,
    model_profile: ModelProfile = "default",
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
    jobs: Jobs = None,
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
