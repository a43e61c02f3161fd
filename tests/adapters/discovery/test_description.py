"""Sources as they are written: what is understood, its one spelling, and what is said of a mistake."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from router.adapters.discovery.description import (
    FileSource,
    NameSource,
    PodSource,
    ServiceRecords,
    SliceSource,
    parse,
)
from router.adapters.discovery.endpoints import Traits
from router.app.settings.model import Settings
from router.app.settings.values import discoveries, split_list


@pytest.mark.parametrize(
    ("text", "meant", "spelled"),
    [
        ("file:/etc/warm.toml", FileSource("/etc/warm.toml"), None),
        ("file:///etc/warm.yaml", FileSource("/etc/warm.yaml"), "file:/etc/warm.yaml"),
        (" file:Replicas.JSON ", FileSource("Replicas.JSON"), "file:Replicas.JSON"),
        ("dns:vllm-headless:8000", NameSource("http", "vllm-headless", 8000), None),
        ("dns:http://Vllm.Default.:80", NameSource("http", "vllm.default.", 80), "dns:vllm.default.:80"),
        (
            "dns:https://a.example:443?weight=2&ranks=4&model=x/y",
            NameSource("https", "a.example", 443, Traits(("x/y",), 2.0, 4)),
            "dns:https://a.example:443?model=x/y&weight=2&ranks=4",
        ),
        ("srv:_http._tcp.vllm", ServiceRecords("http", "_http._tcp.vllm"), None),
        ("srv:_https._tcp.vllm", ServiceRecords("https", "_https._tcp.vllm"), None),
        ("srv:https://_https._tcp.vllm", ServiceRecords("https", "_https._tcp.vllm"), "srv:_https._tcp.vllm"),
        ("srv:https://_api._tcp.vllm", ServiceRecords("https", "_api._tcp.vllm"), None),
        ("srv:http://_https._tcp.vllm", ServiceRecords("http", "_https._tcp.vllm"), None),
        ("srv:vllm.service.consul", ServiceRecords("http", "vllm.service.consul"), None),
        ("kubernetes:llm/vllm:8000", SliceSource("llm", "vllm", 8000), None),
        ("kubernetes:./vllm:http", SliceSource("", "vllm", "http"), None),
        ("kubernetes:/vllm", SliceSource("", "vllm"), "kubernetes:./vllm"),
        (
            "kubernetes:llm/vllm?scheme=https&model=m",
            SliceSource("llm", "vllm", None, "https", Traits(("m",))),
            "kubernetes:llm/vllm?model=m&scheme=https",
        ),
        (
            "kubernetes-pods:llm?selector=app=vllm&port=8000",
            PodSource("llm", ("app=vllm",), 8000),
            None,
        ),
        (
            "kubernetes-pods:?port=http&selector=a.b/app=vllm&selector=!old&weight=3",
            PodSource("", ("a.b/app=vllm", "!old"), "http", "http", Traits((), 3.0)),
            "kubernetes-pods:.?selector=a.b/app=vllm&selector=!old&port=http&weight=3",
        ),
        (
            "kubernetes-pods:.?selector=app%3Dvllm%2Ctier in (a, b),x!=y&port=1",
            PodSource("", ("app=vllm", "tier in (a, b)", "x!=y"), 1),
            "kubernetes-pods:.?selector=app=vllm&selector=tier%20in%20(a%2C%20b)&selector=x!=y&port=1",
        ),
    ],
)
def test_what_is_meant(text: str, meant: object, spelled: str | None) -> None:
    assert parse(text) == meant
    assert str(parse(text)) == (spelled or text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must begin with file:, dns:, srv:, kubernetes:, kubernetes-pods:"),
        ("kubernets:a/b", r"did you mean kubernetes:\?"),
        ("http://gpu-1:8000", "is a replica and no source of replicas: give it as replica"),
        ("file:", "must end in .toml, .json, .yaml, .yml"),
        ("file:replicas.txt", "must end in"),
        ("file://host/warm.toml", "a path follows file: at once"),
        ("file:a\nb.toml", "control characters"),
        ("dns:vllm", "the port is missing: dns:HOST:PORT"),
        ("dns:https://vllm", "the port is missing"),
        ("dns:vllm:0", "has port 0"),
        ("dns:vllm:99999", "is no URL"),
        ("dns:10.0.0.1:8000", "an address needs no look-up"),
        ("dns:[::1]:8000", "an address needs no look-up"),
        ("dns:a..b:8000", "is no name in the DNS"),
        (f"dns:{'a' * 64}:8000", "is no name in the DNS"),
        ("dns:vllm:8000/v1", "must end after the port"),
        ("dns:vllm:8000?wieght=2", r"'wieght' is no option of it; did you mean weight\?"),
        ("dns:vllm:8000?scheme=https", "'scheme' is no option of it; there are model, weight, ranks"),
        ("dns:vllm:8000?weight", "must have the form name=value"),
        ("dns:vllm:8000?weight=0", "weight must be a number above 0 and up to 1000, not '0'"),
        ("dns:vllm:8000?weight=nan", "weight must be a number"),
        ("dns:vllm:8000?weight=1&weight=2", "weight is given twice"),
        ("dns:vllm:8000?ranks=0", "ranks must be a number from 1 to 1024"),
        ("dns:vllm:8000?model=", "model must have a name"),
        ("srv:_http._tcp.vllm:8000", "no port may follow"),
        ("srv:ftp://_http._tcp.vllm", "only http:// or https://"),
        ("srv:", "is no name in the DNS"),
        ("kubernetes:vllm:8000", "the form is kubernetes:NAMESPACE/SERVICE:PORT"),
        ("kubernetes:Default/vllm", "'Default' is no name of a namespace"),
        ("kubernetes:a/b/c", "'b/c' is no name of a Service"),
        ("kubernetes:a/vllm:", "'' is neither a port's number nor its name"),
        ("kubernetes:a/vllm:65536", "a port is a number from 1 to 65535"),
        ("kubernetes:a/vllm:8000?scheme=ftp", "scheme must be http or https"),
        ("kubernetes-pods:a?port=8000", "the form is kubernetes-pods:NAMESPACE"),
        ("kubernetes-pods:a?selector=app=vllm", "the form is kubernetes-pods:NAMESPACE"),
        ("kubernetes-pods:a?selector=app=v%26&port=1", "'app=v&' is no requirement of a label selector"),
        ("kubernetes-pods:a?selector=&port=1", "'' is no requirement"),
        ("kubernetes-pods:a?selector=app in ()x&port=1", "is no requirement"),
    ],
)
def test_what_is_said_of_a_mistake(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse(text)


@pytest.mark.parametrize("text", ["dns:me:pass-word@vllm:8000", "https://me:pass-word@a", "redis://:pass-word@a"])
def test_what_may_be_a_password_is_not_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="has an @") as caught:
        parse(text)
    assert "pass-word" not in str(caught.value)


NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
PORTS = st.integers(1, 65535)
TRAITS = st.builds(
    Traits,
    st.lists(st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1), max_size=2).map(tuple),
    st.floats(0.01, 1000).map(lambda weight: float(f"{weight:g}")),
    st.none() | st.integers(1, 1024),
)
SCHEMES = st.sampled_from(["http", "https"])
REQUIREMENTS = st.lists(
    st.sampled_from(["app=vllm", "app==vllm", "a.b/c!=d", "!old", "new", "x in (a,b)", "x notin ( a , b )", "e="]),
    min_size=1,
).map(tuple)


@given(
    st.builds(NameSource, SCHEMES, NAMES, PORTS, TRAITS)
    | st.builds(ServiceRecords, SCHEMES, NAMES.map("_https._tcp.{}".format), TRAITS)
    | st.builds(SliceSource, NAMES, NAMES, st.none() | PORTS | NAMES, SCHEMES, TRAITS)
    | st.builds(PodSource, NAMES, REQUIREMENTS, PORTS, SCHEMES, TRAITS)
)
def test_its_spelling_means_the_same_and_survives_a_list(source: object) -> None:
    """Settings are split at commas, so a spelling has none."""
    spelled = str(source)
    assert parse(spelled) == source
    assert split_list(spelled) == [spelled]


KINDS = st.sampled_from(["dns", "srv", "kubernetes", "kubernetes-pods"])


@given(st.text() | st.builds("{}:{}".format, KINDS, st.text()))
def test_nothing_but_a_value_error(text: str) -> None:
    try:
        spelled = str(parse(text))
    except ValueError:
        return
    assert str(parse(spelled)) == spelled


def test_settings_have_the_one_spelling() -> None:
    settings = Settings(discover="dns:http://A:80, kubernetes:/vllm:http")  # type: ignore[arg-type]
    assert settings.discover == ("dns:a:80", "kubernetes:./vllm:http")


def test_settings_refuse_what_is_no_source_and_what_is_there_twice() -> None:
    with pytest.raises(ValidationError, match="the port is missing"):
        Settings(discover=("dns:a",))
    with pytest.raises(ValueError, match="dns:a:80 is given twice"):
        discoveries(("dns:a:80", "dns:http://A:80"))
