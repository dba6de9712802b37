"""The dashboards are as their generator makes them, and Grafana and Prometheus can use them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.dashboards import DOCUMENTS, SHOWN, Shown

GENERATOR = Path(__file__).parents[2] / "deploy" / "tools" / "dashboards.py"
SUBJECTS = {"broker", "cluster", "exports", "group", "replication", "transactions"}


def test_the_files_are_as_they_are_generated() -> None:
    checked = subprocess.run(
        [sys.executable, GENERATOR, "--check"], capture_output=True, text=True, check=False
    )

    assert (checked.returncode, checked.stdout) == (0, "")


def test_each_subject_has_a_dashboard() -> None:
    assert set(DOCUMENTS) == {f"eruca-{subject}.json" for subject in SUBJECTS}


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS.keys())
def test_no_panel_lies_on_another(document: dict[str, Any]) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in document["panels"]:
        place = panel["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not own & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= own


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS.keys())
def test_a_panel_has_a_title_of_its_own_and_says_what_it_shows(document: dict[str, Any]) -> None:
    titles = [panel["title"] for panel in document["panels"]]

    assert len(set(titles)) == len(titles)
    assert all(panel["description"] for panel in document["panels"])


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: shown.place)
def test_an_expression_is_sound_and_its_legend_has_labels_that_it_keeps(shown: Shown) -> None:
    kept = re.findall(r"\bby \(([^)]*)\)", shown.expression)

    if kept:  # else all labels are kept
        assert shown.legend_labels <= {label.strip() for one in kept for label in one.split(",")}
    for label in ("instance", "group"):
        if f"${label}" in shown.expression:
            document = DOCUMENTS[shown.place.partition(",")[0]]
            assert label in {one["name"] for one in document["templating"]["list"]}
