"""``eruca-namesrv --check`` reads the key-value table, and makes no file."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca_chassis.running.checking import Finding
from eruca_namesrv.inspection import findings
from eruca_namesrv.settings import NamesrvSettings


def found(path: Path | None) -> Finding:
    settings = NamesrvSettings().model_copy(update={"kv_file": path})
    [finding] = findings(settings)
    return finding


def test_without_a_file_the_table_is_in_memory() -> None:
    assert found(None) == Finding("ok", "key-value table", "in memory, lost at a restart")


def test_a_missing_file_would_be_made(tmp_path: Path) -> None:
    assert "a start would make" in found(tmp_path / "kv.json").text
    assert "a start would make" in found(tmp_path / "deep" / "kv.json").text
    assert [*tmp_path.iterdir()] == []


def test_a_table_is_read(tmp_path: Path) -> None:
    (tmp_path / "kv.json").write_text('{"configTable": {"a": {"x": "1", "y": "2"}}}')

    finding = found(tmp_path / "kv.json")

    assert finding.kind == "ok"
    assert finding.text.endswith("has 2 keys")


@pytest.mark.parametrize("content", ["", "[]", '{"configTable": 7}'])
def test_a_file_that_is_no_table_is_a_fault(tmp_path: Path, content: str) -> None:
    (tmp_path / "kv.json").write_text(content)

    finding = found(tmp_path / "kv.json")

    assert finding.kind == "fault"
    assert finding.text.endswith("repair it or remove it")
    assert (tmp_path / "kv.json").read_text() == content
