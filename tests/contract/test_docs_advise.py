"""The page of `warmroute advise`, its options, its rungs and its triggers agree."""

from router.app.advise.options import HOST_SPEED, STORE_SPEED
from router.replay.advice.arithmetic import idle_ratio
from router.replay.advice.choice import ALIKE_RATIO, MOST_REFUSED_RATIO
from router.replay.advice.flags import commands
from router.replay.advice.ladder import HISTORY_RATIOS, Kind, Rung
from router.replay.advice.triggers import LONGER_RATIO, LOST_RATIO, MORE_RATIO, Facts, triggers
from router.replay.plan import Plan
from router.sim.pins import PinRules
from router.sim.types import EngineConfig
from tests.contract.pages import DOCS, codes, prose, tables
from tests.contract.test_docs_commands import _flags, vllm_flags

ADVISE = prose(DOCS / "how-to" / "advise.md")


def table(heading: str) -> list[tuple[str, ...]]:
    """The first one that has such a row."""
    return next(rows for rows in tables(ADVISE) if any(row[0].startswith(heading) for row in rows))


def test_every_trigger_is_described_with_its_threshold() -> None:
    described = {row[0]: row[1] for row in table("longer contexts")}
    words = ("model", "driver", "vLLM release", "longer contexts", "requests/s", "second team", "hits at peak")
    for trigger in triggers(Facts(), Facts()):
        assert any(word in trigger.name for word in words), trigger.name
    assert all(any(word in name for name in described) for word in words)
    assert f"{LONGER_RATIO:g} times" in described["longer contexts"]
    assert described["requests/s"].startswith(f"{MORE_RATIO:g} times")
    assert f"{MORE_RATIO:g} times" in described["second team"]
    assert described["hits at peak"].startswith(f"{LOST_RATIO * 100:g} points")


def test_every_rung_is_described_in_the_order_of_its_cost() -> None:
    names = [row[0].split()[0] for row in table("free, prefix cache")]
    words = {"free,": Kind.FREE, "offload": Kind.OFFLOAD, "shared": Kind.STORE, "prompts": Kind.SHORTEN,
             "more": Kind.REPLICAS, "pin": Kind.PIN}  # fmt: skip
    assert [words[name] for name in names] == list(Kind)


def test_numbers_of_the_page() -> None:
    assert round(idle_ratio(30.0, 4.0) * 100) == 88
    assert "30 s after 4 s are 88 %" in ADVISE
    assert f"within {ALIKE_RATIO * 100 - 100:.0f} % the cheapest" in ADVISE.replace("\n", " ")
    assert f"more than {MOST_REFUSED_RATIO * 100:.0f} % of requests away" in ADVISE.replace("\n", " ")
    assert {f"--host-speed {HOST_SPEED}", f"--store-speed {STORE_SPEED}"} <= set(codes(ADVISE))
    assert HISTORY_RATIOS == (0.5, 0.25), "a half and a quarter, the page says"
    assert PinRules(1.0).share_ratio == 0.5, "up to half of each cache, it says"


def test_vllms_flags_in_records_are_in_the_table_of_flags() -> None:
    plan = Plan("affinity", EngineConfig())
    for kind in Kind:
        for line in commands(Rung(kind, "", plan, "", 64), "MODEL", 1):
            assert set(_flags(line)) <= vllm_flags(), line
