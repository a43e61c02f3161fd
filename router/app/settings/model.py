"""The settings: one model, from which flags, environment variables, file keys and the reference page are made."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from router.app.settings.about import About
from router.app.settings.kv_events import KvEventsSettings
from router.app.settings.values import redis_url

ENVIRONMENT_PREFIX = "WARMROUTE_"


class Settings(KvEventsSettings):
    """All settings of `warmroute serve`.

    Constructing it reads nothing but its arguments: `router.app.settings.sources.load` reads the environment and the
    file.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX,
        # Compose files and charts write `NAME=` for "not set".
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        validate_default=False,
    )

    redis: Annotated[
        SecretStr | None,
        AfterValidator(redis_url),
        Field(
            description="Redis or Valkey through which routers share what they know: redis://host:6379/0, rediss:// "
            "with TLS, redis+sentinel://host:26379,host:26379/service/0, redis+cluster://host:6379,host:6379. "
            "A password stands before the host: redis://:password@host."
        ),
        About("Shared state", "URL", "One router needs none."),
    ] = None
    redis_prefix: Annotated[
        str,
        Field(
            min_length=1,
            max_length=64,
            pattern=r"^[A-Za-z0-9_.:-]+$",
            description="Beginning of all keys and channels there. Routers of one fleet have the same, other fleets "
            "another.",
        ),
        About("Shared state", "TEXT", "One fleet for each Redis is the usual case."),
    ] = "warmroute"
    redis_secret: Annotated[
        SecretStr | None,
        Field(
            min_length=8,
            description="Keys the hashes that go to Redis and seals what routers tell each other. The same on all "
            "routers; better given in the environment than as a flag, which every local user can read.",
        ),
        About("Shared state", "TEXT", "Without it, whoever reads Redis can test guesses at prompts."),
    ] = None
    redis_deadline_ms: Annotated[
        float,
        Field(
            gt=0,
            le=1000,
            description="Milliseconds that a request waits for what other routers know of it; twice that where Redis "
            "was well a second ago. Redis counts as slow, and is not asked, while it takes longer.",
        ),
        About("Shared state", "MILLISECONDS", "A Redis nearby answers in less than one."),
    ] = 5.0
    redis_ttl_s: Annotated[
        int,
        Field(ge=1, le=30 * 86_400, description="Seconds after its last use that a turn is remembered in Redis."),
        About("Shared state", "SECONDS", "Longer than engines keep what nobody uses."),
    ] = 3600
    workers: Annotated[
        int,
        Field(
            ge=1,
            le=64,
            description="Router processes on the client port. They need Redis to know of each other; each has an admin "
            "port of its own, from the admin port upwards.",
        ),
        About("Shared state", "COUNT", "One process relays some thousand streams."),
    ] = 1
    state_file: Annotated[
        Path | None,
        Field(
            description="File in which a router without Redis keeps what it knows across restarts: hashes, token "
            "counts and replica ids, no text."
        ),
        About("Shared state", "FILE", "A restart then costs every session one cold turn."),
    ] = None

    @field_validator("*", mode="before")
    @classmethod
    def _no_bool_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        """`port = true` in a file is a mistake; pydantic would take it for 1."""
        if isinstance(value, bool) and cls.model_fields[info.field_name or ""].annotation is not bool:
            raise ValueError(f"must not be {str(value).lower()}")
        return value

    @model_validator(mode="after")
    def _ports_differ(self) -> Self:
        if self.port and self.port == self.admin_port and self.host == self.admin_host:
            raise ValueError(f"port and admin_port are both {self.port}")
        last = self.admin_port + self.workers - 1
        if self.admin_port and last > 65535:
            raise ValueError(f"admin_port {self.admin_port} leaves no room for the ports of {self.workers} workers")
        if self.admin_port < self.port <= last and self.admin_port and self.host == self.admin_host:
            raise ValueError(f"port {self.port} is among the workers' admin ports, {self.admin_port} to {last}")
        return self

    @model_validator(mode="after")
    def _workers_share_through_redis(self) -> Self:
        if self.workers > 1 and self.redis is None:
            raise ValueError(f"{self.workers} workers need redis: without it each would know only its own sessions")
        if self.state_file is not None and self.redis is not None:
            raise ValueError("state_file has no meaning with redis, which keeps the same across restarts")
        return self

    @model_validator(mode="after")
    def _engines_connect_to_one_worker(self) -> Self:
        if self.workers > 1 and self.kv_events_bind is not None:
            raise ValueError("kv_events_bind needs workers = 1: engines connect to one address")
        return self

    @model_validator(mode="after")
    def _tls_needs_a_certificate(self) -> Self:
        for name in ("ssl_keyfile", "ssl_keyfile_password", "ssl_ca_certs"):
            if getattr(self, name) is not None and self.ssl_certfile is None:
                raise ValueError(f"{name} has no meaning without ssl_certfile")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments only, so that a Settings made in a test does not depend on the environment."""
        return (init_settings,)
