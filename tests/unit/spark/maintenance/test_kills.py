"""Maintenance of real files, killed before any of its changes: a listing is right at any moment."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from datetime import date
from itertools import count
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from eruca_spark.lake import Catalogue, chain_faults
from eruca_spark.lake_files import LakeBusyError, LocalFiles
from eruca_spark.maintenance.folders import LocalFolders
from eruca_spark.maintenance.plan import files_of
from eruca_spark.maintenance.running import Maintained, Maintenance
from support.small_lakes import (
    DYING_MAINTENANCE,
    KillableFolders,
    KilledError,
    data_files,
    support_path,
    write_batch,
)

TODAY = date(2026, 11, 28)
TARGET_BYTES = 1_000_000
EXPIRED, YESTERDAY = "2026-11-20", "2026-11-27"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    root = tmp_path / "lake"
    write_batch(root, 0, {EXPIRED: range(10)})
    write_batch(root, 1, {EXPIRED: range(10, 15), YESTERDAY: range(15, 20)})
    for batch in range(2, 5):
        write_batch(root, batch, {YESTERDAY: range(batch * 10, batch * 10 + 10)})
    return root


def offsets(root: Path) -> list[int]:
    tables = [pq.ParquetFile(path).read(["queue_offset"]) for path in data_files(root)]
    return sorted(offset for table in tables for offset in table.column(0).to_pylist())


def maintained(folders: LocalFolders) -> Maintained:
    with folders.maintaining():
        return Maintenance(folders).run(TARGET_BYTES, keep_days=3, today=TODAY)


def check_whole(root: Path) -> None:
    manifests = Catalogue(LocalFiles(root)).manifests()
    assert offsets(root) == [*range(15, 50)]
    assert chain_faults(manifests) == []
    assert sum(one.rows - one.dropped_rows for one in manifests) == 35
    assert [root / one.path for one in files_of(manifests)] == data_files(root)
    assert not (root / "_maintenance").exists()
    names = {path.name for path in (root / "_manifest").iterdir()}
    assert names == {f"{one.batch:08d}.json" for one in manifests}


def check_finished(root: Path) -> None:
    catalogue = Catalogue(LocalFiles(root))
    for batch in range(5):
        manifest = catalogue.covering(batch)
        assert manifest is not None, batch
        assert manifest.first <= batch <= manifest.batch


def test_small_files_become_one_and_expired_days_go_with_their_manifests(lake: Path) -> None:
    done = maintained(LocalFolders(lake))

    assert (done.merged_files, done.new_files, done.merged_rows) == (4, 1, 35)
    assert (done.dropped_files, done.dropped_rows) == (2, 15)
    assert [path.parent.name for path in data_files(lake)] == ["batch=4"]
    check_whole(lake)
    manifests = Catalogue(LocalFiles(lake)).manifests()
    assert [(one.first, one.batch, one.rows) for one in manifests] == [(0, 3, 40), (4, 4, 10)]
    assert not (lake / f"topic=orders/dt={EXPIRED}").exists()


def test_a_second_run_has_nothing_to_do(lake: Path) -> None:
    maintained(LocalFolders(lake))
    before = data_files(lake)

    assert not maintained(LocalFolders(lake)).has_changed
    assert data_files(lake) == before


def test_a_kill_before_any_change_leaves_every_row_once(lake: Path, tmp_path: Path) -> None:
    for kill_before in count():
        copy = tmp_path / f"copy-{kill_before}"
        shutil.copytree(lake, copy)
        folders = KillableFolders(copy, kill_before)
        try:
            maintained(folders)
        except KilledError:
            there = offsets(copy)
            assert there[-35:] == [*range(15, 50)]
            assert there[:-35] in ([*range(15)], [])
            check_finished(copy)
            maintained(LocalFolders(copy))
            check_whole(copy)
            check_finished(copy)
            shutil.rmtree(copy)
            continue
        break
    check_whole(copy)
    assert kill_before > 20


@pytest.mark.parametrize("kill_before", [4, 9, 14])
def test_a_killed_process_holds_no_lock(lake: Path, kill_before: int) -> None:
    process = subprocess.run(
        [sys.executable, "-c", DYING_MAINTENANCE, str(lake), str(kill_before), "3"],
        env={**os.environ, **support_path()},
        check=False,
    )

    assert process.returncode == -signal.SIGKILL
    maintained(LocalFolders(lake))
    check_whole(lake)


def test_a_reader_that_holds_the_lake_is_not_disturbed(lake: Path) -> None:
    before = data_files(lake)
    with LocalFiles(lake).reading(), pytest.raises(LakeBusyError, match="a job is reading"):
        maintained(LocalFolders(lake))

    assert data_files(lake) == before
    maintained(LocalFolders(lake))
    check_whole(lake)


def test_manifests_are_joined_beside_neither_a_batch_nor_a_reader(lake: Path) -> None:
    class Folders(LocalFolders):
        joined = 0

        def delete(self, path: str) -> None:
            if path.startswith("_manifest/"):
                self.joined += 1
                with pytest.raises(LakeBusyError), LocalFiles(lake).unread():
                    pytest.fail("readers are not kept away")
            super().delete(path)

    folders = Folders(lake)
    maintained(folders)

    assert folders.joined == 3


def test_remains_of_several_interrupted_folds_are_hidden_and_then_deleted(lake: Path) -> None:
    """Earlier versions deleted manifests in ascending order, and never again."""
    before = {path: path.read_text() for path in (lake / "_manifest").iterdir()}
    maintained(LocalFolders(lake))
    for path, text in before.items():
        if path.name in ("00000001.json", "00000002.json"):
            path.write_text(text)

    check_finished(lake)
    assert maintained(LocalFolders(lake)).folded_batches == 2
    check_whole(lake)
    check_finished(lake)


def test_what_is_replaced_keeps_mode_and_owner(lake: Path) -> None:
    """An export and readers can go on if another user maintains the lake."""
    partition = lake / f"topic=orders/dt={YESTERDAY}"
    modes = {
        partition: 0o2775,
        partition / "batch=4": 0o750,
        partition / "batch=1/part-1.parquet": 0o640,
        lake / "_manifest/00000003.json": 0o664,
    }
    owner = (1_234, 1_235) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    for path, mode in modes.items():
        os.chown(path, *owner)
        path.chmod(mode)
    before = os.umask(0o077)
    try:
        maintained(LocalFolders(lake))
    finally:
        os.umask(before)

    [merged] = data_files(lake)
    replaced = (partition, partition / "batch=4", merged, lake / "_manifest/00000003.json")
    for path, mode in zip(replaced, modes.values(), strict=True):
        status = path.stat()
        assert (oct(status.st_mode & 0o7777), status.st_uid, status.st_gid) == (oct(mode), *owner)


def test_a_second_maintenance_is_refused(lake: Path) -> None:
    with (
        LocalFolders(lake).maintaining(),
        pytest.raises(LakeBusyError, match="another maintenance"),
    ):
        maintained(LocalFolders(lake))


def test_files_of_an_unfinished_batch_stay_as_they_are(lake: Path) -> None:
    unfinished = lake / f"topic=orders/dt={YESTERDAY}/batch=5/part-0.parquet"
    unfinished.parent.mkdir()
    unfinished.write_bytes(b"half a file")
    hidden = unfinished.with_name(".part-0.parquet.crc")
    hidden.touch()

    maintained(LocalFolders(lake))

    assert unfinished.read_bytes() == b"half a file"
    assert hidden.exists()


def test_a_batch_that_is_repeated_after_a_maintenance_is_known(lake: Path) -> None:
    """Spark's checkpoint may be older than the manifests, which stand for several batches."""
    ranges = {one.batch: one.ranges for one in Catalogue(LocalFiles(lake)).manifests()}
    maintained(LocalFolders(lake))

    catalogue = Catalogue(LocalFiles(lake))
    for batch, of_batch in ranges.items():
        manifest = catalogue.covering(batch)
        assert manifest is not None
        assert manifest.stands_for(batch, "1b4e", of_batch)
        assert not manifest.stands_for(batch, "other", of_batch)
        assert not manifest.stands_for(batch, "1b4e", [of_batch[0]._replace(end=99)])
    assert catalogue.covering(5) is None
