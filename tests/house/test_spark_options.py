"""The options of the Spark source are in its README, and what the README names exists."""

from __future__ import annotations

import re
from pathlib import Path

from eruca.exporting.option_texts import OPTION_NAMES
from pyspark_eruca.sink_columns import SINK_COLUMNS
from pyspark_eruca.sink_options import SINK_OPTIONS

README = Path(__file__).parents[2] / "spark" / "README.md"
NOT_IN_A_TABLE = {  # options of replays, which eruca-spark sets, and Spark's own
    "replay",
    "replayFrom",
    "force",
    "checkpointLocation",
    "queryName",
    "path",
}


def tables(heading: str) -> set[str]:
    """Return the names in the first cells of all tables under a header row that begins so."""
    names: set[str] = set()
    is_inside = False
    for line in README.read_text().splitlines():
        if line.startswith(f"| {heading} |"):
            is_inside = True
        elif not line.startswith("|"):
            is_inside = False
        elif is_inside:
            names.update(re.findall(r"`([^`]+)`", line.split("|")[1]))
    return names


def test_every_option_of_the_source_is_in_a_table_of_the_readme() -> None:
    assert tables("option") | {"subscribe", "maxOffsetsPerTrigger"} == (
        set(OPTION_NAMES) - NOT_IN_A_TABLE
    )


def test_every_option_of_the_sink_is_an_option_of_the_source() -> None:
    assert set(SINK_OPTIONS) <= set(OPTION_NAMES)


def test_the_columns_of_the_sink_are_those_of_the_readme() -> None:
    assert tables("column") == set(SINK_COLUMNS)
