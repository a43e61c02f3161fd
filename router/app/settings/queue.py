"""The settings of the queue: when requests are held, in which order, and for how long."""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field
from pydantic_settings import NoDecode

from router.app.settings.about import GIB, MIB, About
from router.app.settings.serving import ServingSettings
from router.app.settings.values import header_names, split_list


class QueueSettings(ServingSettings):
    """Fields only; `router.app.settings.model.Settings` adds the rest."""

    queue_depth_s: Annotated[
        float,
        Field(
            ge=0,
            le=600,
            description="Seconds of prefill that a replica has ahead from which on requests wait in the router, where "
            "short and urgent ones go first. 0 never holds a request.",
        ),
        About("Queue", "SECONDS", "Enough that an engine never runs dry; what is with an engine can't be put in order.",
              live=True),
    ] = 1.0
    max_queue_wait_s: Annotated[
        float,
        Field(
            gt=0,
            le=86_400,
            description="Longest time in the queue: a request that would wait longer is answered 429, with the "
            "predicted wait as Retry-After.",
        ),
        About("Queue", "SECONDS", "Most people and clients have given up by then.", live=True),
    ] = 60.0
    max_queued_requests: Annotated[
        int,
        Field(ge=1, le=1_000_000, description="Requests in the queue at the most; the next one is answered 429."),
        About("Queue", "COUNT", "A minute's work of a large fleet.", live=True),
    ] = 4096
    max_queued_bytes: Annotated[
        ByteSize,
        Field(ge=MIB, le=1024 * GIB, description="Bodies in the queue at the most. Accepts 256MiB, 1GiB."),
        About("Queue", "BYTES", "As much as the index may take.", live=True),
    ] = ByteSize(256 * MIB)
    tenant_header: Annotated[
        tuple[str, ...],
        NoDecode,
        BeforeValidator(split_list),
        AfterValidator(header_names),
        Field(
            description="A request header that names the tenant, set by a gateway in front. Each tenant has an equal "
            "share of the queue. Give it once for each; the first one present wins."
        ),
        About("Queue", "HEADER", "The client's API key is the tenant.", live=True),
    ] = ()
    sse_keepalive_s: Annotated[
        float,
        Field(
            ge=0,
            le=3600,
            description="Seconds of silence after which a stream that has not begun gets a comment, so that proxies in "
            "between keep it open. 0 sends none.",
        ),
        About("Queue", "SECONDS", "A comment commits the status 200: errors after it come as events.", live=True),
    ] = 0.0
