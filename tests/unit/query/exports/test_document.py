"""The page about exports tells the columns and limits that there are."""

from __future__ import annotations

import re
from pathlib import Path

from eruca.contract import limits
from eruca.contract.exports import EXPORT_COLUMNS
from eruca.core.messages.body_codecs import UNPACKED_SIZE_MAX
from eruca_query.settings import QuerySettings

PAGE = (Path(__file__).parents[4] / "services" / "query" / "EXPORTS.md").read_text()


def test_the_table_of_columns_is_the_contracts() -> None:
    told = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (yes|no) \| (.+) \|$", PAGE, re.MULTILINE)

    assert told == [
        (
            column.name,
            column.type,
            column.unit or "-",
            "yes" if column.nullable else "no",
            column.meaning,
        )
        for column in EXPORT_COLUMNS
    ]


def test_the_limits_are_those_that_are_enforced() -> None:
    told = dict(re.findall(r"\| ([\d ]+?)(?: MiB)? \| `(\w+)` \|$", PAGE, re.MULTILINE))
    by_name = {name: int(value.replace(" ", "")) for value, name in told.items()}
    settings = QuerySettings.model_fields

    assert by_name.pop("UNPACKED_SIZE_MAX") * 2**20 == UNPACKED_SIZE_MAX
    for name, value in by_name.items():
        setting = name.removeprefix("ERUCA_QUERY_").lower()
        expected = settings[setting].default if setting in settings else getattr(limits, name)
        assert value == expected, name
    assert len(by_name) == 8
