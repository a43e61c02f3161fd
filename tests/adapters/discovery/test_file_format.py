"""Files of replicas: what they may say, and what is said of a mistake."""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.adapters.discovery.file_format import read_replicas
from router.ports import Endpoint

TOML = """
replicas = [
  "http://plain:8000?weight=0.5",
]
"""

TABLES = """
[[replicas]]
url = "HTTP://gpu-1:8000/"
model = "llama"
models = ["llama", "lora-a"]
weight = 2
labels = { rack = "b", aisle = "3" }

[[replicas]]
url = "https://gpu-2"
ranks = 2
leaving = true
"""

YAML = """
replicas:
  - url: HTTP://gpu-1:8000/
    model: llama
    models: [llama, lora-a]
    weight: 2
    labels: {rack: b, aisle: "3"}
  - url: https://gpu-2
    ranks: 2
    leaving: true
"""

JSON = json.dumps(
    {
        "replicas": [
            {
                "url": "HTTP://gpu-1:8000/", "model": "llama", "models": ["llama", "lora-a"], "weight": 2,
                "labels": {"rack": "b", "aisle": "3"},
            },
            {"url": "https://gpu-2", "ranks": 2, "leaving": True},
        ]
    }
)  # fmt: skip

EXPECTED = [
    Endpoint(
        "http://gpu-1:8000", models=("llama", "lora-a"), weight=2.0, labels=(("aisle", "3"), ("rack", "b"))
    ),
    Endpoint("https://gpu-2:443", rank=0, leaving=True),
    Endpoint("https://gpu-2:443", rank=1, leaving=True),
]  # fmt: skip


@pytest.mark.parametrize(("text", "suffix"), [(TABLES, ".toml"), (YAML, ".yaml"), (YAML, ".yml"), (JSON, ".json")])
def test_all_that_can_be_said(text: str, suffix: str) -> None:
    assert read_replicas(text.encode(), suffix) == EXPECTED
    assert read_replicas(b"\xef\xbb\xbf" + text.encode(), suffix) == EXPECTED


def test_a_replica_may_be_a_text() -> None:
    assert read_replicas(TOML.encode(), ".toml") == [Endpoint("http://plain:8000", weight=0.5)]


def test_no_replicas_at_all_has_to_be_said() -> None:
    assert read_replicas(b"replicas = []", ".toml") == []


@pytest.mark.parametrize(
    ("text", "suffix", "said"),
    [
        ("", ".toml", "no list called replicas"),
        ("", ".yaml", "no list called replicas"),
        ("", ".json", r"no JSON: Expecting value \(at line 1, column 1\)"),
        ('{"replicas": [', ".json", "at line 1, column 15"),
        ("[" * 100_000, ".json", "no JSON"),
        ("replicas = [\n  'http://a'", ".toml", r"no TOML: .*\(at .*\)"),
        ("a = 1\nreplicas = x", ".toml", r"no TOML: .*\(at line 2, column 12\)"),
        ("replicas:\n- {url: 'http://a'", ".yaml", r"no YAML: .* \(at line \d, column \d+\)"),
        ("replicas: !!python/object:os.system {}", ".yaml", "no YAML: could not determine a constructor"),
        ("replicas: \x00", ".yaml", "no YAML"),
        ("replica = []", ".toml", "no list called replicas"),
        ("replicas = []\nreplica = []", ".toml", r"the file: 'replica' is unknown; did you mean replicas\?"),
        ("replicas = 'http://a'", ".toml", "replicas must be a list"),
        ("replicas: [1]", ".yaml", r"replicas\[0\]: a replica is a text, or a table with a url"),
        ("replicas: ['http://a', 'http://b?wait=1']", ".yaml", r"replicas\[1\]: .* has the option 'wait'"),
        ("replicas: [{url: 'http://a', wieght: 2}]", ".yaml", r"replicas\[0\]: 'wieght' is unknown; did you mean"),
        ("replicas: [{url: 'http://a', 3: 2}]", ".yaml", r"replicas\[0\]: 3 is unknown; there are url, model"),
        ("replicas: [{weight: 2}]", ".yaml", r"replicas\[0\]: .*missing required field url"),
        ("replicas: [{url: 'http://a', weight: '2'}]", ".yaml", r"replicas\[0\]: Expected float, got str in weight"),
        ("replicas: [{url: 'http://a', weight: true}]", ".yaml", r"replicas\[0\]: Expected float, got bool in weight"),
        ("replicas: [{url: 'http://a', weight: -1}]", ".yaml", r"replicas\[0\]: weight must be above 0"),
        ("replicas: [{url: 'http://a', weight: .nan}]", ".yaml", r"replicas\[0\]: weight must be above 0"),
        ("replicas: [{url: 'http://a', ranks: 5000}]", ".yaml", r"replicas\[0\]: ranks must be a number from 1 to"),
        ("replicas: [{url: 'http://a', models: ['']}]", ".yaml", r"replicas\[0\]: a model has no name"),
        ("replicas: [{url: 'http://a', labels: {rack: 3}}]", ".yaml", r"Expected str, got int in labels"),
        ("replicas: [{url: 'http://a/v1'}]", ".yaml", r"replicas\[0\]: 'http://a/v1' must end after the port"),
        ("replicas: ['http://a', 'HTTP://A:80/']", ".yaml", r"replicas\[1\]: http://a:80 is there twice"),
    ],
)
def test_what_is_said_of_a_mistake(text: str, suffix: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_replicas(text.encode(), suffix)


def test_what_is_no_utf_8() -> None:
    with pytest.raises(ValueError, match="byte 3 is not UTF-8"):
        read_replicas(b"abc\xff", ".toml")


@given(st.binary() | st.text().map(str.encode), st.sampled_from([".toml", ".json", ".yaml"]))
def test_nothing_but_a_value_error(data: bytes, suffix: str) -> None:
    try:
        read_replicas(data, suffix)
    except ValueError:
        return


URLS = st.integers(1, 999).map("http://host-{}:8000".format)


ENGINES = st.tuples(URLS, st.none() | st.integers(1, 3), st.floats(0.1, 1000))


def ranks_of(ranks: int | None) -> Iterable[int | None]:
    return [None] if ranks is None else range(ranks)


@given(st.lists(ENGINES, unique_by=lambda each: each[0]))
def test_each_engine_once_in_its_order(engines: list[tuple[str, int | None, float]]) -> None:
    listed = [{"url": url, "weight": weight, "ranks": ranks} for url, ranks, weight in engines]
    found = read_replicas(msgspec.json.encode({"replicas": listed}), ".json")
    expected = [(url, rank, weight) for url, ranks, weight in engines for rank in ranks_of(ranks)]
    assert [(each.url, each.rank, each.weight) for each in found] == expected
