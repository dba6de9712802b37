"""The layout of a lake: chosen once, kept in the lake, refused if it differs later."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca.exporting.errors import OptionError
from eruca_spark.lake_files import LocalFiles
from eruca_spark.layout import LAYOUT_FILE, Layout, settled_layout, stored_layout


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return LocalFiles(tmp_path)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("topic,day", ("topic", "dt", "batch")),
        ("topic,hour", ("topic", "dt", "hour", "batch")),
        ("topic,day,property:tenant", ("topic", "dt", "property_tenant", "batch")),
        ("topic, hour, property:a_1", ("topic", "dt", "hour", "property_a_1", "batch")),
    ],
)
def test_a_layout_is_described_by_its_columns(text: str, columns: tuple[str, ...]) -> None:
    layout = Layout.parse(text)

    assert layout.columns == columns
    assert Layout.parse(layout.text) == layout
    assert layout.pattern(7) == "/".join([*(f"{name}=*" for name in columns[:-1]), "batch=7"])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "topic",
        "day,topic",
        "topic,minute",
        "topic,property:tenant",
        "topic,day,property:",
        "topic,day,property:a-b",
        "topic,day,property:" + "a" * 41,
        "topic,day,property:a,property:b",
    ],
)
def test_another_description_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="partition-by: expected topic, then day or hour"):
        Layout.parse(text)


def test_a_new_lake_keeps_its_layout(files: LocalFiles) -> None:
    layout = settled_layout(files, "topic,hour", 64, is_new=True)

    assert layout == Layout(by_hour=True, target_file_mib=64)
    assert stored_layout(files) == layout
    for partition_by in (None, "topic,hour"):
        assert settled_layout(files, partition_by, None, is_new=False) == layout


def test_another_layout_is_refused_later(files: LocalFiles) -> None:
    settled_layout(files, "topic,hour", None, is_new=True)

    for is_new in (True, False):  # killed before the first batch, and after it
        with pytest.raises(OptionError, match="divided by topic,hour, not by topic,day"):
            settled_layout(files, "topic,day", None, is_new=is_new)
    with pytest.raises(OptionError, match="the lake aims for 256"):
        settled_layout(files, None, 64, is_new=False)


def test_a_lake_of_the_default_has_no_file_and_cannot_be_changed(
    files: LocalFiles, tmp_path: Path
) -> None:
    """So a lake of an earlier version, which has none, is one of the default."""
    assert settled_layout(files, "topic,day", None, is_new=True) == Layout()

    assert not (tmp_path / LAYOUT_FILE).exists()
    assert settled_layout(files, None, None, is_new=False) == Layout()
    with pytest.raises(OptionError, match="divided by topic,day, not by topic,hour"):
        settled_layout(files, "topic,hour", None, is_new=False)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"partition_by": 1, "target_file_mib": 1}'])
def test_an_unreadable_file_is_refused(files: LocalFiles, text: str) -> None:
    files.write(LAYOUT_FILE, text)

    with pytest.raises(OptionError, match=r"unreadable _lake\.json"):
        stored_layout(files)
