"""Which rung is recommended: the cheapest that reaches the target, else the cheapest of the best."""

from __future__ import annotations

from math import nan

import pytest

from router.replay.advice.choice import Choice, Tried, choose
from router.replay.advice.flags import commands, remark
from router.replay.advice.ladder import Kind, Rung
from router.replay.report.figures import Figures
from tests.replay.advice.worlds import ROOMY


def tried(kind: Kind, p95_s: float, size: int = 0, refused: float = 0.0) -> Tried:
    rung = Rung(kind, f"{kind} {size}", ROOMY, "", size)
    figures = Figures("affinity", 1, 10_000, 100, 0.5, 1.0, 1.0, 0.1, p95_s, p95_s, 1.0, 1.0, 1.0, refused)
    return Tried(rung, figures)


FREE, PIN = tried(Kind.FREE, 6.0), tried(Kind.PIN, 0.1)
HOST, LARGE = tried(Kind.OFFLOAD, 3.0, 64), tried(Kind.OFFLOAD, 1.5, 128)
STORE, CUT, SHORT = tried(Kind.STORE, 1.2, 512), tried(Kind.SHORTEN, 1.1, 20_000), tried(Kind.SHORTEN, 0.5, 10_000)
MORE = tried(Kind.REPLICAS, 0.9, 16)
ALL = [FREE, PIN, HOST, LARGE, STORE, SHORT, CUT, MORE]


@pytest.mark.parametrize(
    ("target_s", "chosen"),
    [(10.0, FREE), (6.0, FREE), (5.0, HOST), (3.0, HOST), (2.0, LARGE), (1.3, STORE), (1.15, CUT), (0.95, SHORT)],
)
def test_the_cheapest_that_reaches_the_target(target_s: float, chosen: Tried) -> None:
    choice = choose(ALL, target_s)
    assert (choice.chosen, choice.met) == (chosen, True)


def test_none_reaches_it_so_the_best() -> None:
    choice = choose([FREE, PIN, HOST, LARGE, MORE], 0.5)
    assert (choice.chosen, choice.met) == (MORE, False)
    assert choice.reason.startswith(
        "As it is, TTFT p95 is 6.00 s; the target is 0.5 s. Nothing that was tried reaches it."
    )


def test_what_is_hardly_better_is_not_worth_its_price() -> None:
    choice = choose([FREE, tried(Kind.OFFLOAD, 5.8, 64), tried(Kind.REPLICAS, 5.72, 9)], 1.0)
    assert (choice.chosen, choice.met) == (FREE, False)
    assert choice.reason.endswith("leave it as it is.")


def test_pinning_is_never_recommended() -> None:
    assert choose([FREE, PIN], 1.0).chosen is FREE


def test_who_sends_people_away_reaches_nothing() -> None:
    away = tried(Kind.OFFLOAD, 0.2, 64, refused=0.02)
    assert choose([FREE, away, MORE], 1.0).chosen is MORE
    full = tried(Kind.FREE, 0.2, refused=0.3)
    choice = choose([full, away], 1.0)
    assert (choice.chosen, choice.met) == (full, False)
    assert "30.0% of requests are sent away" in choice.reason


def test_nothing_answered_is_no_success() -> None:
    assert choose([tried(Kind.FREE, nan), MORE], 1.0).chosen is MORE


def test_where_the_model_would_see_less_the_alternative_is_named() -> None:
    def reason(*others: Tried) -> str:
        return choose([FREE, CUT, *others], 1.15).reason

    assert reason(MORE).endswith("Of what leaves prompts as they are, replicas 16 does: 0.90 s.")
    assert reason(HOST).endswith("Nothing that leaves prompts as they are reaches it.")


def chosen(one: Tried) -> list[str]:
    return commands(Choice(one, True, "").chosen.rung, "Qwen/Qwen3-8B", 1)


def test_commands() -> None:
    plain = "vllm serve Qwen/Qwen3-8B --enable-prompt-tokens-details --kv-cache-metrics"
    assert chosen(FREE) == chosen(CUT) == chosen(MORE) == [plain]
    (offload,) = chosen(HOST)
    assert offload.startswith(f"{plain} --kv-offloading-size 64 --kv-events-config '{{")
    assert [line.removeprefix(plain).split()[0] for line in chosen(STORE)] == [
        "--kv-offloading-size", "--kv-transfer-config"
    ]  # fmt: skip
    assert commands(FREE.rung, "m", 4)[0].startswith("vllm serve m --tensor-parallel-size 4 --enable")


def test_what_commands_do_not_say() -> None:
    said = [remark(one.rung) for one in (FREE, HOST, STORE, CUT, MORE)]
    assert said[0] == ""
    assert ["--kv-events auto" in said[1], "512 GiB" in said[2], "20,000" in said[3], said[4]] == [
        True, True, True, "16 of them."
    ]  # fmt: skip
