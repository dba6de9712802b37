"""Read a Spark checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca.exporting.ranges import Queue, Range
from eruca_spark.checkpoint import finished_position, query_id, ranges_of
from eruca_spark.lake import LakeError
from eruca_spark.lake_files import LocalFiles

QUEUE = Queue("orders", "broker-a", 0)


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    files = LocalFiles(tmp_path)
    files.write("_checkpoint/metadata", '{"id":"1b4e"}')
    for batch, end in enumerate((10, 25)):
        first = f'"{QUEUE.text}": 4' if batch == 0 else ""
        offset = f'{{"first": {{{first}}}, "next": {{"{QUEUE.text}": {end}}}}}'
        files.write(f"_checkpoint/offsets/{batch}", f"v1\n{{}}\n{offset}")
    return files


def test_a_batch_has_what_lies_between_its_offset_and_the_one_before(files: LocalFiles) -> None:
    assert ranges_of(files, 0) == (Range(QUEUE, 4, 10),)
    assert ranges_of(files, 1) == (Range(QUEUE, 10, 25),)
    assert query_id(files) == "1b4e"


@pytest.mark.parametrize("text", ["", "v1\n{}", "v2\n{}\n{}", "v1\n{}\n{}\n{}", "v1\n{}\n{"])
def test_what_is_no_offset_is_refused(files: LocalFiles, text: str) -> None:
    files.write("_checkpoint/offsets/1", text)

    with pytest.raises(LakeError, match="_checkpoint/offsets/1 is damaged"):
        ranges_of(files, 1)


def test_a_position_is_finished_once_its_batch_is_and_is_as_the_source_stored_it(
    files: LocalFiles,
) -> None:
    before = finished_position(files)
    files.write("_checkpoint/commits/0", "v1")
    files.write("_checkpoint/commits/.1.crc", "")
    under_way = finished_position(files)
    files.write("_checkpoint/commits/1", "v1")

    assert (before, under_way) == (None, None)
    assert finished_position(files) == {"first": {}, "next": {QUEUE.text: 25}}


def test_a_checkpoint_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="no metadata"):
        query_id(LocalFiles(tmp_path))
