"""The command line's options for `warmroute advise`."""

from pathlib import Path
from typing import Annotated

import typer

from router.app.replay.traffic_options import (
    FLEET,
    OUTPUT,
    TRAFFIC,
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

TRIED = "What is tried"

HOST_SPEED = "20G"
"""A third of what PCIe 5.0 x16 can do at its best (63 GB/s): copies go in blocks, and both ways."""

STORE_SPEED = "5G"
"""A link of 40 Gbit/s."""


def advise(  # noqa: PLR0913, PLR0917 - one argument for each option
    trace: Annotated[
        str,
        typer.Argument(
            metavar="TRACE",
            help="A trace's file, gzip or plain; or chats:RATE. [dim]\\[default: what the router at --admin records]",
            show_default=False,
        ),
    ] = "",
    admin: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Admin port of a running router, to be asked, too.", rich_help_panel=TRAFFIC),
    ] = None,
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
    kv_token_bytes: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            min=1,
            help="KV cache of a token. [dim]\\[default: the profile's, else 131072]",
            rich_help_panel=FLEET,
        ),
    ] = None,
    host_gib: Annotated[
        str,
        typer.Option(
            metavar="SIZES",
            help="Host memory of a replica, such as 64,128. [dim]\\[default: above the GPU's cache]",
            rich_help_panel=TRIED,
        ),
    ] = "",
    host_speed: Annotated[
        str, typer.Option(metavar="BYTES/S", help="From the host's memory to its GPUs.", rich_help_panel=TRIED)
    ] = HOST_SPEED,
    store_gib: Annotated[
        str,
        typer.Option(
            metavar="SIZES",
            help="Of a shared store. [dim]\\[default: the middle of --host-gib for each replica]",
            rich_help_panel=TRIED,
        ),
    ] = "",
    store_speed: Annotated[
        str, typer.Option(metavar="BYTES/S", help="From there to one replica.", rich_help_panel=TRIED)
    ] = STORE_SPEED,
    history_tokens: Annotated[
        str,
        typer.Option(
            metavar="LIMITS",
            help="Prompts are cut above, such as 8k,16k. [dim]\\[default: 1/2 and 1/4 of their p95]",
            rich_help_panel=TRIED,
        ),
    ] = "",
    target_ttft_p95: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.001, help="What is enough.", rich_help_panel=OUTPUT)
    ] = 2.0,
    record: Annotated[
        Path | None,
        typer.Option(metavar="FILE.md", help="Write the decision down, dated.", rich_help_panel=OUTPUT),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.md",
            help="Say what has changed since that was written; exit 1 if it is time to decide again.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Model, for the record and its commands.", rich_help_panel=OUTPUT),
    ] = None,
    vllm_version: Annotated[
        str | None,
        typer.Option(metavar="RELEASE", help="For the record; asked of engines with --admin.", rich_help_panel=OUTPUT),
    ] = None,
    driver: Annotated[
        str | None, typer.Option(metavar="RELEASE", help="GPU driver, for the record.", rich_help_panel=OUTPUT)
    ] = None,
    jobs: Jobs = None,
) -> int:
    """Say what to keep between a session's turns, from recorded traffic: nothing more, host memory, a store, GPUs."""
    from router.app.advise.asked import Asked
    from router.app.advise.command import run_advise
    from router.app.replay.asked import Asked as Traffic

    traffic = Traffic(
        source=trace,
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
        target_ttft_p95_s=target_ttft_p95,
        jobs=jobs,
    )
    return run_advise(
        Asked(
            traffic=traffic,
            admin=admin,
            record=record,
            check=check,
            host_gib=host_gib,
            store_gib=store_gib,
            history_tokens=history_tokens,
            host_speed=host_speed,
            store_speed=store_speed,
            kv_token_bytes=kv_token_bytes,
            model=model,
            vllm_version=vllm_version,
            driver=driver,
        )
    )
