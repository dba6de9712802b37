"""The command ``eruca-spark maintain``: its outcomes, for people and for programs."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from eruca_spark.lake import LakeError
from eruca_spark.lake_files import LakeBusyError, LocalFiles
from eruca_spark.main import app
from eruca_spark.maintain_command import lake_path
from support.small_lakes import data_files, write_batch

TODAY = datetime.now(UTC).date()


def maintain(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["maintain", *arguments], env={"COLUMNS": "200"})


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    old, new = str(TODAY - timedelta(days=40)), str(TODAY - timedelta(days=2))
    write_batch(tmp_path, 0, {old: range(10)})
    for batch in (1, 2, 3):
        write_batch(tmp_path, batch, {new: range(batch * 10, batch * 10 + 10)})
    return tmp_path


def test_it_says_what_it_has_done_and_then_that_nothing_is_left(lake: Path) -> None:
    done = maintain(str(lake), "--keep", "30")

    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "deleted: 10 messages in 1 file",
        "merged: 3 files into 1 file",
    ]
    assert maintain(str(lake), "--keep", "30").stdout == f"{lake} needs no maintenance\n"
    assert len(data_files(lake)) == 1


def test_it_publishes_metrics(lake: Path, tmp_path: Path) -> None:
    file = tmp_path / "eruca.prom"
    maintain(str(lake), "--metrics-file", str(file))

    label = f'{{command="maintain",target="{lake}"}}'
    assert f"eruca_job_last_run_merged_files{label} 3.0" in file.read_text()


def test_it_tells_a_program_the_same(lake: Path) -> None:
    document = json.loads(maintain(lake.as_uri(), "--output", "json").stdout)

    assert document == {
        "command": "maintain",
        "outcome": "done",
        "target": lake.as_uri(),
        "merged_files": 3,
        "new_files": 1,
        "merged_rows": 30,
        "dropped_files": 0,
        "dropped_rows": 0,
        "folded_batches": 1,
        "recovered": False,
    }
    again = json.loads(maintain(str(lake), "--output", "json").stdout)
    assert again["outcome"] == "nothing_new"


def test_a_lake_that_is_read_is_left_for_later(lake: Path) -> None:
    with LocalFiles(lake).reading():
        told = maintain(str(lake), "--output", "json")

    assert isinstance(told.exception, LakeBusyError)
    assert json.loads(told.stdout)["outcome"] == "retry"


def test_a_missing_file_is_named_and_nothing_is_changed(lake: Path) -> None:
    missing = data_files(lake)[1]
    missing.unlink()

    told = maintain(str(lake), "--output", "json")
    assert isinstance(told.exception, LakeError)
    document = json.loads(told.stdout)
    assert (document["outcome"], document["error"]) == ("fault", "LakeError")
    assert str(missing) in document["detail"]
    assert len(data_files(lake)) == 3


@pytest.mark.parametrize("lake", ["hdfs:///lake", "s3a://bucket/lake"])
def test_a_lake_elsewhere_is_refused(lake: str) -> None:
    with pytest.raises(LakeError, match="expected a lake on a local disk"):
        lake_path(lake)


def test_a_directory_that_is_no_lake_is_refused(lake: Path) -> None:
    shutil.rmtree(lake / "_manifest")

    with pytest.raises(LakeError, match="there is no lake"):
        lake_path(str(lake))


@pytest.mark.parametrize("option", [("--keep", "-1"), ("--target-file-mib", "0")])
def test_a_wrong_number_is_refused(lake: Path, option: tuple[str, str]) -> None:
    assert maintain(str(lake), *option).exit_code == 2
