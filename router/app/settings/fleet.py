"""The settings of the fleet: its replicas, how they are found and watched, and which one is chosen."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, SecretStr
from pydantic_settings import BaseSettings, NoDecode

from router.app.settings.about import GIB, MIB, About
from router.app.settings.values import aliases, bearer_key, discoveries, header_names, replica_specs, split_list

PolicyName = Literal["affinity", "session-hash", "prefix-hash", "least-load", "round-robin"]


class FleetSettings(BaseSettings):
    """Fields only; `router.app.settings.model.Settings` adds the rest."""

    replica: Annotated[
        tuple[str, ...],
        NoDecode,
        BeforeValidator(split_list),
        AfterValidator(replica_specs),
        Field(
            description="A vLLM server, http://host:port or https://host:port. Give it once for each replica. What is "
            "known of it may follow: http://host:port?model=NAME&weight=2&ranks=4, ranks for a data-parallel engine."
        ),
        About("Fleet", "URL", "Without any, the router starts and answers 503.", live=True),
    ] = ()
    discover: Annotated[
        tuple[str, ...],
        NoDecode,
        BeforeValidator(split_list),
        AfterValidator(discoveries),
        Field(
            description="Where replicas are found: file:PATH, dns:HOST:PORT, srv:NAME, "
            "kubernetes:NAMESPACE/SERVICE:PORT, kubernetes-pods:NAMESPACE?selector=LABELS&port=PORT. "
            "Give it once for each source."
        ),
        About("Fleet", "SOURCE", "A fixed list of replicas is enough for many fleets."),
    ] = ()
    discover_interval_s: Annotated[
        float,
        Field(
            ge=0.1,
            le=3600,
            description="Seconds between two looks at a source that tells nothing by itself: a name, a file. "
            "Kubernetes, which does tell, is listed anew twelve times less often.",
        ),
        About("Fleet", "SECONDS", "A resolver nearby is asked seldom enough, and a new replica is found soon enough."),
    ] = 5.0
    alias: Annotated[
        tuple[str, ...],
        NoDecode,
        BeforeValidator(split_list),
        AfterValidator(aliases),
        Field(description="Another name for a model, NAME=MODEL: the engine is sent MODEL. Give it once for each."),
        About("Fleet", "NAME=MODEL", "Engines' own names are enough.", live=True),
    ] = ()
    unknown_model: Annotated[
        Literal["refuse", "forward"],
        Field(
            description="What becomes of a request for a model that no replica lists: refuse answers 404 and says what "
            "there is, forward lets an engine answer."
        ),
        About(
            "Fleet",
            "WHAT",
            "A typing error then shows what there is; engines that load adapters on request need forward.",
            live=True,
        ),
    ] = "refuse"
    warm_up_tokens: Annotated[
        int,
        Field(
            ge=0,
            le=100_000_000,
            description="Prompt tokens that a new replica is sent at the most, as one-token requests for the prefixes "
            "that most sessions share; 0 sends none. While it is on, the texts of those prefixes are kept in memory.",
        ),
        About("Fleet", "TOKENS", "No request is made that no client asked for, and no text is kept."),
    ] = 0
    touch: Annotated[
        bool,
        Field(
            description="Touch idle sessions that are likely to come back just after their blocks would go: a "
            "one-token request renews them while the replica has nothing to do. While it is on, sessions' last "
            "requests are kept in memory."
        ),
        About("Fleet", "", "No request is made that no client asked for, no text is kept, and few workloads gain."),
    ] = False
    touch_bytes: Annotated[
        ByteSize,
        Field(
            ge=MIB,
            le=64 * GIB,
            description="Memory for the requests that touches are made from. When it is full, those go that are worth "
            "least.",
        ),
        About("Fleet", "BYTES", "The histories of two thousand chats, or of a hundred coding agents."),
    ] = ByteSize(64 * MIB)
    touch_ratio: Annotated[
        float,
        Field(gt=0, le=0.5, description="Share of a replica's time that touches may take at the most."),
        About("Fleet", "RATIO", "About one touch a second, while there is nothing else to do."),
    ] = 0.02
    policy: Annotated[
        PolicyName,
        Field(
            description="How a replica is chosen: affinity weighs the warm prefix against the queue; the others are "
            "here to compare with."
        ),
        About("Fleet", "NAME", "The best hit rate and tail of the policies compared."),
    ] = "affinity"
    session_header: Annotated[
        tuple[str, ...],
        NoDecode,
        BeforeValidator(split_list),
        AfterValidator(header_names),
        Field(
            description="A request header that names the session. Give it once for each; the first one present wins."
        ),
        About("Fleet", "HEADER", "vLLM reads the session from this header too.", live=True),
    ] = ("x-session-id",)
    prefill_tokens_per_s: Annotated[
        float,
        Field(
            gt=0,
            le=10_000_000,
            description="Prompt tokens a replica is believed to prefill each second before its own speed was measured.",
        ),
        About(
            "Fleet", "TOKENS", "The speed of the replicas that the policies were compared on; a few answers replace it."
        ),
    ] = 8_000.0
    index_bytes: Annotated[
        ByteSize,
        Field(
            ge=MIB,
            le=1024 * GIB,
            description="Memory for the index of what the replicas hold. When it is full, "
            "the longest unused entries go. Accepts 256MiB, 1GiB.",
        ),
        About("Fleet", "BYTES", "Enough for a fleet that caches 64 million tokens."),
    ] = ByteSize(256 * MIB)
    engine_api_key: Annotated[
        SecretStr | None,
        AfterValidator(bearer_key),
        Field(
            description="Bearer key for the replicas, sent instead of the client's Authorization header and with "
            "the router's own calls. Better given in the environment than as a flag, which every local user can "
            "read."
        ),
        About("Fleet", "KEY", "Without it the client's own header passes through.", live=True),
    ] = None
    health_interval_s: Annotated[
        float,
        Field(ge=0.1, le=60, description="Seconds between two probes of a replica's /health, spread by a fifth."),
        About(
            "Fleet",
            "SECONDS",
            "A replica that comes back is used within 2 s; a probe costs an engine nothing.",
            live=True,
        ),
    ] = 1.0
    health_failures: Annotated[
        int,
        Field(
            ge=1,
            le=100,
            description="Failed probes in a row after which a replica is taken out. A refused connection counts at "
            "once.",
        ),
        About("Fleet", "COUNT", "One lost packet, or one pause of an engine, is no outage.", live=True),
    ] = 3
    slow_start_s: Annotated[
        float,
        Field(
            ge=0,
            le=3600,
            description="Seconds in which the work sent to a replica that has just come in, or come back, grows to its "
            "full share. 0 turns it off.",
        ),
        About("Fleet", "SECONDS", "Engines compile and fill caches with their first requests.", live=True),
    ] = 10.0
