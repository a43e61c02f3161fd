"""The settings of KV cache events: whether engines' own word on their caches is followed, and where it is published."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_settings import NoDecode

from router.app.settings.about import About
from router.app.settings.exact import ExactSettings
from router.app.settings.values import bind_address, event_sources, has_zmq, split_list


class KvEventsSettings(ExactSettings):
    """Fields and their rules only; `router.app.settings.model.Settings` adds the rest."""

    kv_events: Annotated[
        Literal["auto", "off"],
        Field(
            description="Whether KV cache events are followed: auto follows each engine that publishes some, as it "
            "says itself (vLLM 0.32 and later) or as kv_events_endpoint says. Needs the extra: pip install "
            "'warmroute[kv-events]'."
        ),
        About("KV cache events", "WHAT", "Engines publish none unless they are told to."),
    ] = "off"
    kv_events_endpoint: Annotated[
        tuple[str, ...],
        NoDecode,
        BeforeValidator(split_list),
        AfterValidator(event_sources),
        Field(
            description="Where engines publish that do not say so: tcp://*:5557?replay=5558, * being each replica's "
            "host, or for one engine http://host:port=tcp://host:5557?replay=5558. Data-parallel rank r adds r to the "
            "ports. Give it once for each."
        ),
        About("KV cache events", "SOURCE", "vLLM 0.32 and later says it itself."),
    ] = ()
    kv_events_bind: Annotated[
        str | None,
        AfterValidator(bind_address),
        Field(
            description="Address, tcp://HOST:PORT, for engines that connect to their subscriber instead of being "
            "connected to; each needs a topic of its own. Whoever reaches it can tell the router anything about caches."
        ),
        About("KV cache events", "ADDRESS", "Engines are connected to."),
    ] = None

    @model_validator(mode="after")
    def _kv_events_can_be_followed(self) -> Self:
        if self.kv_events != "off" and not has_zmq():
            raise ValueError("kv_events needs a package that is not installed: pip install 'warmroute[kv-events]'")
        return self
