"""Replay's page and its options, policies and profiles agree."""

from router.app.replay.asked import DEFAULT_POLICIES
from router.replay import contenders
from router.replay.profiles import PROFILES
from router.replay.report.rows import COLUMNS
from router.replay.traces.formats import _TELLING
from tests.contract.pages import DOCS, codes, prose, tables

REPLAY, POLICIES, TRACES = (
    prose(DOCS / path) for path in ("how-to/replay.md", "how-to/compare-policies.md", "reference/traces.md")
)


def test_profiles_are_those_of_the_table() -> None:
    (table,) = [table for table in tables(REPLAY) if table[0][0].strip("`") in PROFILES]
    assert [row[0] for row in table] == [f"`{name}`" for name in PROFILES]
    for row, profile in zip(table, PROFILES.values(), strict=True):
        decode = f"{profile.decode_s * 1000:g} + {profile.decode_per_seq_s * 1000:g}"
        speeds = [f"{profile.kv_tokens:,}", f"{profile.prefill_tokens_per_s:,.0f}", decode, profile.kind]
        assert [*row[1:7]] == [profile.model, f"{profile.gpus} x {profile.gpu}", *speeds]
        assert profile.source in row[7]


def test_every_policy_is_described() -> None:
    described = set(codes(POLICIES))
    missing = [name for name in contenders.names() if name.removesuffix("-unheld") not in described]
    assert missing == []


def test_the_default_policies_are_those_of_the_example() -> None:
    (table,) = [table for table in tables(REPLAY) if table[0][0] == "`affinity`"]
    assert [row[0] for row in table] == [f"`{name}`" for name in DEFAULT_POLICIES]


def test_every_column_is_described() -> None:
    (table,) = [table for table in tables(REPLAY) if table[0][0] == "requests"]
    described = {row[0] for row in table}
    for column in COLUMNS:
        assert column.heading in described or column.heading.split()[0] in described, column.heading


def test_every_field_that_tells_a_format_is_described() -> None:
    described = set(codes(TRACES)) | {"warmroute_recording"}
    for kind, fields in _TELLING.items():
        assert fields <= described | {"requests"}, kind
