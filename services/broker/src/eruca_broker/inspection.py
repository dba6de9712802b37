"""``eruca-broker --check``: look at the store, and say what a start would do with it.

The checks are those of a start (:mod:`.opening`) that need no walk over the log. Nothing is opened
for writing: only a start verifies the records, because it may repair what it finds.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from eruca_broker.settings import BrokerSettings
from eruca_broker.store.files.checkpoint import read_checkpoint
from eruca_broker.store.files.directory_lock import LOCK_NAME
from eruca_broker.store.identity import WrongReplicaError, read_mark, stored_identity
from eruca_broker.store.log.commit_log import CorruptLogError, checked_files
from eruca_chassis.counts import counted
from eruca_chassis.files.file_lock import FileLock
from eruca_chassis.running.checking import Finding, directory_finding

_STORE: Final = "store"
_FIX: Final = "let the broker's user read and write everything in it"


def findings(settings: BrokerSettings) -> Iterator[Finding]:
    """Yield what a start would find in the store."""
    directory = settings.store_dir
    found = directory_finding(
        directory,
        _STORE,
        fix="set ERUCA_BROKER_STORE_DIR to a directory that it may read and write",
    )
    if found is not None:
        yield found
        return
    try:
        yield from _of_store(directory, settings)
    except OSError as error:
        yield Finding("fault", _STORE, f"{error.filename}: {error.strerror}; {_FIX}")


def _of_store(directory: Path, settings: BrokerSettings) -> Iterator[Finding]:
    usage = shutil.disk_usage(directory)
    used = usage.used / usage.total
    if used >= settings.disk_refuse_ratio:
        yield Finding(
            "note",
            "disk",
            f"{used:.0%} of {directory} are used: the broker would refuse writes, from "
            f"{settings.disk_refuse_ratio:.0%} on; make room there",
        )
    else:
        yield Finding("ok", "disk", f"{usage.free // 2**20} MiB are free, {used:.0%} are used")
    try:
        replica_id = settings.replica_id if settings.is_replica else None
        stored_identity(directory, replica_id)
    except WrongReplicaError as error:
        yield Finding("fault", _STORE, str(error))
        return
    holder = FileLock.holder_of(directory / LOCK_NAME)
    if holder is not None:
        yield Finding(
            "note",
            _STORE,
            f"{directory} is in use by process {holder or '(unknown)'}, so its log was not "
            "looked at; stop that process before you start this broker",
        )
        return
    yield _of_log(directory)


def _of_log(directory: Path) -> Finding:
    log = directory / "commitlog"
    try:
        files, _ = checked_files(log) if log.is_dir() else ([], None)
    except CorruptLogError as error:
        return Finding("fault", _STORE, str(error))
    if not files:
        return Finding("ok", _STORE, f"a start would begin a new log in {directory}")
    begin, end = int(files[0][0].name), int(files[-1][0].name) + files[-1][1]
    text = (
        f"{directory} has a log in {counted(len(files), 'file')}, from log offset {begin} to {end} "
        "at most"
    )
    checkpoint = read_checkpoint(directory)
    if read_mark(directory) is None and checkpoint is not None:
        return Finding("ok", _STORE, f"{text}; it was closed in order")
    trusted = max(begin, checkpoint.projected_offset) if checkpoint else begin
    return Finding(
        "ok",
        _STORE,
        f"{text}; it was not closed in order: a start would verify the records from log offset "
        f"{trusted} on, and rebuild what is derived from them",
    )
