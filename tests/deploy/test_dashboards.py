"""The dashboards are what the generator makes, and are in order: ids, places, texts, variables, provisioning."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import pytest
import yaml

from deploy.grafana.generate.__main__ import FOLDER, texts
from tests.deploy.shipped import DASHBOARDS, GRAFANA, boards, panels

each_board = pytest.mark.parametrize("board", boards(), ids=lambda board: board["uid"])


def test_the_files_are_what_the_generator_makes() -> None:
    made = texts()
    assert {file.name for file in DASHBOARDS} == set(made)
    for file in DASHBOARDS:
        assert file.parent == FOLDER
        assert file.read_text() == made[file.name], "run: python -m deploy.grafana.generate"


def test_each_has_a_name_of_its_own() -> None:
    assert (
        len({board["uid"] for board in boards()}) == len({board["title"] for board in boards()}) == len(boards()) == 2
    )


@each_board
def test_panels_lie_side_by_side(board: dict[str, Any]) -> None:
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for one, other in combinations((panel["gridPos"] for panel in board["panels"]), 2):
        apart_x = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart_y = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart_x or apart_y, (one, other)
    lines: dict[int, int] = {}
    for panel in board["panels"]:
        place = panel["gridPos"]
        lines[place["y"]] = lines.get(place["y"], 0) + place["w"]
    assert set(lines.values()) == {24}, "a line is not full"


@each_board
def test_every_panel_says_what_it_shows(board: dict[str, Any]) -> None:
    titles = [panel["title"] for panel in panels(board)]
    assert len(set(titles)) == len(titles)
    for panel in panels(board):
        assert panel["description"].endswith("."), panel["title"]
        assert panel["targets"], panel["title"]
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults.get("unit") or panel["type"] == "state-timeline", panel["title"]
        names = [target["refId"] for target in panel["targets"]]
        assert len(set(names)) == len(names)


@each_board
def test_every_query_is_filtered_and_every_variable_used(board: dict[str, Any]) -> None:
    known = {variable["name"] for variable in board["templating"]["list"]}
    used: set[str] = set()
    for panel in panels(board):
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}"
            for selector in re.findall(r"(?:warmroute|process)_\w+(.?)", target["expr"]):
                assert selector == "{", f"{panel['title']}: a metric without a filter"
            used |= set(re.findall(r"\$([a-z]\w*)", target["expr"]))
    assert used | {"datasource"} == known


def test_the_provisioning_files_fit() -> None:
    source = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "prometheus.yml").read_text())
    (prometheus,) = source["datasources"]
    assert prometheus["type"] == "prometheus"
    config = yaml.safe_load((GRAFANA.parent / "prometheus" / "prometheus.yml").read_text())
    assert prometheus["jsonData"]["timeInterval"] == config["global"]["scrape_interval"]
    provider = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "warmroute.yml").read_text())
    assert provider["providers"][0]["options"]["path"] == "/var/lib/grafana/dashboards/warmroute"
