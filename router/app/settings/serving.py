"""The settings of serving: ports, limits, and what the router tells of itself."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, ByteSize, Field, FilePath, SecretStr

from router.app.settings.about import GIB, HOST, MIB, PORT, About
from router.app.settings.fleet import FleetSettings
from router.app.settings.values import otlp_url

LogLevel = Literal["critical", "error", "warning", "info", "debug"]


class ServingSettings(FleetSettings):
    """Fields only; `router.app.settings.model.Settings` adds the rest."""

    host: Annotated[
        str,
        HOST,
        Field(description="Address that clients connect to. 0.0.0.0 for all IPv4 interfaces."),
        About("Listening", "ADDRESS", "Nothing is open to the network unless asked for."),
    ] = "127.0.0.1"
    port: Annotated[
        int,
        PORT,
        Field(description="Port that clients connect to. 0 takes a free one and prints it."),
        About("Listening", "PORT", "Free beside a vLLM server, which takes 8000."),
    ] = 8080
    admin_host: Annotated[
        str,
        HOST,
        Field(description="Address of the admin API and /metrics."),
        About("Listening", "ADDRESS", "The admin API shows the fleet's addresses, so it stays local unless asked for."),
    ] = "127.0.0.1"
    admin_port: Annotated[
        int,
        PORT,
        Field(description="Port of the admin API and /metrics. 0 takes a free one and prints it."),
        About("Listening", "PORT", "A port of its own, so that it can be kept from clients."),
    ] = 9090
    ssl_certfile: Annotated[
        FilePath | None,
        Field(description="Certificate chain (PEM) of the client port; turns TLS on. Read again when it changes."),
        About("Listening", "FILE", "TLS usually ends at a load balancer before the router."),
    ] = None
    ssl_keyfile: Annotated[
        FilePath | None,
        Field(description="Private key (PEM), when it is not in the certificate's file. Read again when it changes."),
        About("Listening", "FILE", "A certificate file may hold its key."),
    ] = None
    ssl_keyfile_password: Annotated[
        SecretStr | None,
        Field(description="Password of the private key."),
        About("Listening", "PASSWORD", "Most keys on servers have none."),
    ] = None
    ssl_ca_certs: Annotated[
        FilePath | None,
        Field(description="Authorities (PEM) that client certificates are checked against."),
        About("Listening", "FILE", "Client certificates are not asked for."),
    ] = None

    max_body_bytes: Annotated[
        ByteSize,
        Field(
            ge=1024,
            le=4 * GIB,
            description="Largest request body taken; above it the answer is 413. Accepts 64MiB, 1GiB.",
        ),
        About("Limits", "BYTES", "Room for several images or an audio file in one request.", live=True),
    ] = ByteSize(64 * MIB)
    max_bodies_bytes: Annotated[
        ByteSize,
        Field(
            ge=MIB,
            le=1024 * GIB,
            description="Bodies in memory at the most, of each worker; a request whose body takes more than is left is "
            "answered 503. At least twice max_body_bytes. Accepts 512MiB, 2GiB.",
        ),
        About("Limits", "BYTES", "A body is kept until its answer begins; with the index it fits in 1 GB.", live=True),
    ] = ByteSize(512 * MIB)
    max_retries: Annotated[
        int,
        Field(ge=0, le=5, description="Other replicas tried when one fails before its first response byte."),
        About(
            "Limits",
            "COUNT",
            "Two failures in a row are bad luck; three are an outage that a retry makes worse.",
            live=True,
        ),
    ] = 2
    connect_timeout_s: Annotated[
        float,
        Field(gt=0, le=60, description="Seconds to wait for a connection to a replica."),
        About(
            "Limits",
            "SECONDS",
            "A replica in the same data centre answers within milliseconds; one lost SYN "
            "packet is sent again after 1 s.",
            live=True,
        ),
    ] = 2.0
    silence_timeout_s: Annotated[
        float,
        Field(gt=0, le=86_400, description="Seconds without a byte from a replica after which a request is ended."),
        About(
            "Limits",
            "SECONDS",
            "Above any prefill and queue worth waiting for; vLLM leaves streams open and silent when it is stopped.",
            live=True,
        ),
    ] = 300.0
    vanish_timeout_s: Annotated[
        float,
        Field(
            ge=1,
            le=3600,
            description="Seconds without any sign of its host after which a connection is given up: a client's, or one "
            "to a replica.",
        ),
        About(
            "Limits",
            "SECONDS",
            "A laptop that changes its network is back by then. Linux alone would go on for 15 minutes, or for ever "
            "where nothing is sent.",
        ),
    ] = 30.0
    keepalive_s: Annotated[
        int,
        Field(ge=1, le=3600, description="Seconds an idle client connection is kept open."),
        About(
            "Limits",
            "SECONDS",
            "Longer than the 60 s of common load balancers, so that they close first.",
            live=True,
        ),
    ] = 75
    upstream_keepalive_s: Annotated[
        float,
        Field(gt=0, lt=5, description="Seconds an idle connection to a replica is kept for the next request."),
        About("Limits", "SECONDS", "vLLM closes idle connections after 5 s; a request must not meet that.", live=True),
    ] = 4.0
    drain_s: Annotated[
        float,
        Field(
            ge=0,
            le=3600,
            description="Seconds after SIGTERM in which new connections are still taken while /readyz says 503.",
        ),
        About(
            "Limits",
            "SECONDS",
            "Nothing waits where a client's own connection is told to end; behind a load balancer, longer than it "
            "takes to notice.",
            live=True,
        ),
    ] = 0.0
    grace_s: Annotated[
        float,
        Field(ge=0, le=86_400, description="Seconds that running requests have to end after that."),
        About("Limits", "SECONDS", "What Kubernetes grants a pod by default.", live=True),
    ] = 30.0

    scrape_interval_s: Annotated[
        float,
        Field(ge=0.1, le=60, description="Seconds between two readings of a replica's /metrics."),
        About(
            "Observing",
            "SECONDS",
            "A reading costs vLLM 5 to 15 ms; the router counts its own requests anyway.",
            live=True,
        ),
    ] = 1.0
    models_interval_s: Annotated[
        float,
        Field(ge=0.5, le=3600, description="Seconds between two readings of a replica's /v1/models."),
        About("Observing", "SECONDS", "Adapters loaded later are listed soon enough.", live=True),
    ] = 10.0
    log_level: Annotated[
        LogLevel,
        Field(description="Least severe log lines written to stderr."),
        About("Observing", "LEVEL", "One line a request and one for each change of a replica's health.", live=True),
    ] = "info"
    log_requests: Annotated[
        bool,
        Field(description="Write one structured log line for each request."),
        About("Observing", "", "It costs a few microseconds and answers most questions."),
    ] = True
    record: Annotated[
        Path | None,
        Field(
            description="File that finished requests are recorded in, to be replayed: sizes, times and keyed hashes, "
            "no text. With several workers each has its own, FILE.w1, FILE.w2 and so on."
        ),
        About("Observing", "FILE", "Nothing is written down unless asked for.", live=True),
    ] = None
    record_max_bytes: Annotated[
        ByteSize,
        Field(
            ge=MIB,
            le=1024 * GIB,
            description="Size at which a recording goes on in a new file, and the old one becomes FILE.1. Accepts "
            "64MiB, 1GiB.",
        ),
        About("Observing", "BYTES", "Some 200,000 requests with prompts of 8,000 tokens.", live=True),
    ] = ByteSize(256 * MIB)
    record_files: Annotated[
        int,
        Field(ge=1, le=1_000, description="Files that are kept of recordings, of each worker; the oldest one goes."),
        About("Observing", "COUNT", "1 GiB in all is free on most disks.", live=True),
    ] = 4
    otlp_endpoint: Annotated[
        str | None,
        AfterValidator(otlp_url),
        Field(
            description="OpenTelemetry collector that traces are sent to by OTLP over HTTP, such as "
            "http://collector:4318. Needs the extra: pip install 'warmroute[otel]'."
        ),
        About("Observing", "URL", "Traces are passed on to the engines as they came, and cost nothing."),
    ] = None
    trace_ratio: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="Share of the traces beginning here that is sampled. One that a client has begun is sampled as "
            "the client says.",
        ),
        About("Observing", "RATIO", "All of them, until their number is a burden.", live=True),
    ] = 1.0
