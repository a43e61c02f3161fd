"""The settings of the door: who may come in, how often, and what of a request is not believed."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, SecretStr
from pydantic_settings import NoDecode

from router.app.settings.about import MIB, About
from router.app.settings.queue import QueueSettings
from router.app.settings.values import networks, origins, split_list


class DoorSettings(QueueSettings):
    """Fields only; `router.app.settings.model.Settings` adds the rest."""

    api_keys: Annotated[
        SecretStr | None,
        Field(
            description="Keys of clients, with commas between them; without keys and key file, everybody is let in. "
            "Better given in the environment than as a flag, which every local user can read."
        ),
        About("Door", "KEYS", "Engines without keys are open too.", live=True),
    ] = None
    api_keys_file: Annotated[
        Path | None,
        Field(
            description="TOML file of clients' keys as SHA-256, with a name and limits for each; read again when it "
            "changes."
        ),
        About("Door", "FILE", "A single key fits into the environment.", live=True),
    ] = None
    key_requests_per_minute: Annotated[
        int,
        Field(ge=0, le=10_000_000, description="Requests a minute of one key, where its file says nothing; 0: any."),
        About("Door", "COUNT", "The queue is fair without limits.", live=True),
    ] = 0
    key_tokens_per_minute: Annotated[
        int,
        Field(
            ge=0,
            le=10_000_000_000,
            description="Tokens a minute of one key, prompts and answers, where its file says nothing; 0: any.",
        ),
        About("Door", "TOKENS", "The queue is fair without limits.", live=True),
    ] = 0
    key_concurrent_requests: Annotated[
        int,
        Field(ge=0, le=1_000_000, description="Requests under way of one key, where its file says nothing; 0: any."),
        About("Door", "COUNT", "The queue is fair without limits.", live=True),
    ] = 0
    admin_token: Annotated[
        SecretStr | None,
        Field(
            min_length=8,
            description="Bearer token that the admin port asks for, except for /metrics and health checks. Better "
            "given in the environment than as a flag, which every local user can read."
        ),
        About("Door", "TOKEN", "The admin port is local unless asked for.", live=True),
    ] = None
    cors_origin: Annotated[
        tuple[str, ...],
        NoDecode,
        BeforeValidator(split_list),
        AfterValidator(origins),
        Field(description="Origin of web pages that may call the client port: https://host, or *. Once for each."),
        About("Door", "ORIGIN", "Engines' own answers to browsers pass as they are."),
    ] = ()
    trusted_proxy: Annotated[
        tuple[str, ...],
        NoDecode,
        BeforeValidator(split_list),
        AfterValidator(networks),
        Field(
            description="Address or network of a proxy whose Forwarded and X-Forwarded-* headers are believed and "
            "passed on; others' are dropped. Once for each."
        ),
        About("Door", "NETWORK", "Anybody can write these headers.", live=True),
    ] = ()
    max_head_bytes: Annotated[
        ByteSize,
        Field(ge=1024, le=MIB, description="Largest request head taken; above it the answer is 431. Accepts 64KiB."),
        About("Door", "BYTES", "As much as vLLM's own server takes.", live=True),
    ] = ByteSize(64 * 1024)
    max_url_bytes: Annotated[
        ByteSize,
        Field(ge=64, le=MIB, description="Longest request target taken; above it the answer is 414. Accepts 8KiB."),
        About("Door", "BYTES", "No path of an engine comes near it.", live=True),
    ] = ByteSize(8 * 1024)
    head_timeout_s: Annotated[
        float,
        Field(gt=0, le=3600, description="Seconds that a request's head may take to arrive, from its first byte."),
        About("Door", "SECONDS", "Many slow packets; a connection held open byte by byte ends here.", live=True),
    ] = 20.0
    body_timeout_s: Annotated[
        float,
        Field(gt=0, le=3600, description="Seconds without a byte of a request's body after which it is answered 408."),
        About("Door", "SECONDS", "A pause of any network that still works.", live=True),
    ] = 30.0
    max_connections: Annotated[
        int,
        Field(ge=1, le=1_000_000, description="Client connections at the most; the next one is answered 503."),
        About("Door", "COUNT", "Below the files that most systems let one process open twice over.", live=True),
    ] = 20_000
