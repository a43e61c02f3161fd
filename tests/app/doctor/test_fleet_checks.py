"""Findings about engines together."""

from __future__ import annotations

from router.app.doctor.engines import ModelCard
from router.app.doctor.findings import Check, Level
from router.app.doctor.fleet_checks import check_fleet
from tests.app.doctor.seen import engine, found, page


def test_alike_and_each_its_own() -> None:
    told = check_fleet([engine(1), engine(2), engine(3)])
    assert [(finding.check, finding.level) for finding in told] == [(Check.ALIKE, Level.OK)]


def test_one_engine_alone_is_compared_with_nobody() -> None:
    assert check_fleet([engine(1)]) == []


def test_differences_are_named_with_who_has_them() -> None:
    old = engine(2, version="0.30.0", models=(ModelCard("tiny", 4_096, "/data/other", None),))
    told = check_fleet([engine(1), old, engine(3)])
    assert {finding.check for finding in told} == {Check.ALIKE}
    assert {finding.level for finding in told} == {Level.WARNING}
    texts = [finding.what for finding in told]
    assert len(texts) == 3
    names = [f"r-{number:08x} (http://gpu-{number}:8000)" for number in (1, 2, 3)]
    assert texts[0] == f"tiny: vLLM differs: 0.32.0 at {names[0]}, {names[2]}; 0.30.0 at {names[1]}"
    assert "--max-model-len differs: 2048 at" in texts[1]
    assert "model differs: tiny at" in texts[2]


def test_folders_of_weights_may_differ_between_machines() -> None:
    moved = engine(2, models=(ModelCard("tiny", 2_048, "/other/disk/tiny/", None),))
    assert found(check_fleet([engine(1), moved]), Check.ALIKE).level is Level.OK


def test_caching_on_and_off() -> None:
    off = engine(2, page=page(('enable_prefix_caching="True"', 'enable_prefix_caching="False"')))
    assert "prefix caching differs: on at" in found(check_fleet([engine(1), off]), Check.ALIKE).what


def test_replicas_of_other_models_are_not_compared() -> None:
    other = engine(2, version="0.30.0", models=(ModelCard("other", 100, None, None),))
    assert found(check_fleet([engine(1), other]), Check.ALIKE).level is Level.OK


def test_one_engine_under_two_addresses() -> None:
    same = frozenset({(1.0, 1.0)})
    told = found([*check_fleet([engine(1, identities=same), engine(2, identities=same)])][:1], Check.LISTED_TWICE)
    assert told.level is Level.PROBLEM
    assert "gpu-1" in told.what
    assert "gpu-2" in told.what
