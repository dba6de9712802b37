"""The command ``eruca-spark maintain``: its outcomes, for people and for programs."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from eruca_spark.lake import LakeError
from eruca_spark.lake_files import LakeBusyError, LocalFiles
from eruca_spark.main import app
from eruca_spark.maintain_command import lake_path
from eruca_spark.maintenance.folders import LocalFolders
from eruca_spark.maintenance.running import Maintenance
from eruca_spark.shell import interruption
from support.export_cluster import command
from support.patience import PATIENCE_SECONDS
from support.small_lakes import data_files, write_batch
from support.spark import until_none

STAGED = "_maintenance/staged"
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


def test_ctrl_c_finishes_the_partition_that_is_being_changed(lake: Path) -> None:
    third = str(TODAY - timedelta(days=1))
    for batch in (4, 5):
        write_batch(lake, batch, {third: range(batch * 10, batch * 10 + 10)})
    folders = LocalFolders(lake)

    with command("maintain", str(lake), "--output", "json") as process:
        with folders.writing():  # an export does, so the first change waits
            until_none(lambda: () if [*(lake / STAGED).rglob("*.parquet")] else ("a file",))
            process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 130, output
    told = json.loads(output)
    assert (told["outcome"], told["new_files"], told["folded_batches"]) == ("interrupted", 1, 0)
    assert not (lake / "_maintenance").exists()
    assert json.loads(maintain(str(lake), "--output", "json").stdout)["new_files"] == 1


def test_ctrl_c_during_the_last_step_leaves_nothing_undone(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold = Maintenance._fold

    def interrupted_fold(maintenance: Maintenance) -> None:
        signal.raise_signal(signal.SIGINT)
        fold(maintenance)

    monkeypatch.setattr(Maintenance, "_fold", interrupted_fold)

    told = maintain(str(lake), "--output", "json")

    assert told.exit_code == 0, told.output
    document = json.loads(told.stdout)
    assert (document["outcome"], document["folded_batches"]) == ("done", 1)


def test_ctrl_c_while_a_command_is_loaded_ends_it_without_a_word() -> None:
    program = (
        "import signal, sys\n"
        # A shell's job in the background ignores it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Finder:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'eruca_spark.main': signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from eruca_spark.__main__ import run; run()"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_that_the_parent_ignores_is_meant_for_another_job() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruption() as interrupted:
            signal.raise_signal(signal.SIGINT)
            assert not interrupted.is_set()
    finally:
        signal.signal(signal.SIGINT, before)
