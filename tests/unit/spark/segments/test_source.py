"""The format as Spark finds it, where its extra is not installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from eruca.exporting.errors import OptionError, SourceError
from pyspark_eruca_segments import DefaultSource


def test_without_its_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("pyspark_eruca_segments.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numpy", None)
    source = DefaultSource({"path": str(tmp_path), "topic": "orders", "broker": "broker-a"})

    with pytest.raises(SourceError, match=r"numpy is not installed: .*spark\[segments\]"):
        source.schema()


def test_another_missing_module_is_no_matter_of_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "pyspark_eruca_segments.plan", raising=False)
    monkeypatch.setitem(sys.modules, "pyspark_eruca_segments.backups", None)
    source = DefaultSource({"path": str(tmp_path), "topic": "orders", "broker": "broker-a"})

    with pytest.raises(ModuleNotFoundError, match="pyspark_eruca_segments"):
        source.schema()


def test_a_schema_of_the_user_s_is_refused_because_nothing_was_planned(tmp_path: Path) -> None:
    """Spark does not ask for the schema then, not even if the columns are the same."""
    given = {"path": str(tmp_path), "topic": "orders", "broker": "broker-a", "columns": "topic"}

    with pytest.raises(OptionError, match="without a schema of your own"):
        DefaultSource(given).reader(StructType().add("topic", "string"))
