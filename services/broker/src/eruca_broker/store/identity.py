"""The files that prove who a store is: ``config/replica.json``, and the content of ``abort``.

``replica.json`` exists only in a store of a broker group. ``abort`` exists while a store is open.
It has the boot id of the kernel and the flush mode, so that the next start can tell whether written
records may be gone (:mod:`eruca_broker.core.replication.identity`). RocketMQ writes a process id
into it, or nothing; both count as another kernel's.

Crash rule: a new uid is durable before ``abort`` names the present kernel, and before any record is
cut. Otherwise a kill in between would leave the former uid with fewer records. The content of
``abort`` need not be durable: it is only of use to a process under the same kernel.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
import structlog

from eruca_broker.core.replication.broker_group import Change
from eruca_broker.core.replication.identity import Identity, OpenMark, may_have_lost
from eruca_broker.store.config.checked_json import read_checked, write_checked
from eruca_broker.store.config.config_snapshots import DIRECTORY
from eruca_broker.store.files.refusals import is_scarcity
from eruca_broker.store.files.small_files import UnfitFileError, read_file
from eruca_broker.store.settings import FlushMode
from eruca_chassis.files.directories import FILE_MODE, sync_directory

ABORT_NAME: Final = "abort"
REPLICA_NAME: Final = "replica.json"
BOOT_ID_PATH: Final = Path("/proc/sys/kernel/random/boot_id")
_NO_BOOT_ID: Final = "-"
_UID_SIZE: Final = 8  # random bytes
_MARK_SIZE_MAX: Final = 4_096  # bytes; Eruca's has about 40

logger = structlog.get_logger(__name__)


class WrongReplicaError(Exception):
    """The store belongs to another replica than the settings say."""


class _Stored(msgspec.Struct, frozen=True):
    """The content of ``replica.json``."""

    replica_id: int
    uid: str
    former_uids: list[str] = []  # latest first
    known_epoch: int = 0  # of the latest row of its group that was known
    known_number: int = 0


def stored_identity(directory: Path, replica_id: int | None) -> Identity | None:
    """Return the identity that the store in *directory* has; None: it has none yet, or needs none.

    Raises:
        WrongReplicaError: The store belongs to another replica, or to a group.
        OSError: The identity cannot be read.
    """
    if replica_id is None:
        if (directory / DIRECTORY / REPLICA_NAME).exists():
            # It would serve as a second master of its name.
            raise WrongReplicaError(
                f"the store in {directory} belongs to a broker group, but this broker is "
                "standalone: set ERUCA_BROKER_CONTROLLER_URLS. To take the store out of the group "
                f"for good, delete {DIRECTORY}/{REPLICA_NAME}"
            )
        return None
    known = _read(directory)
    if known is not None and known.replica_id != replica_id:
        raise WrongReplicaError(
            f"the store in {directory} is that of replica {known.replica_id}, but the settings say "
            f"{replica_id}: set ERUCA_BROKER_REPLICA_ID={known.replica_id}, or give replica "
            f"{replica_id} a directory of its own by ERUCA_BROKER_STORE_DIR"
        )
    return known


def settle_identity(
    directory: Path, replica_id: int | None, mode: FlushMode, mark: OpenMark | None
) -> Identity | None:
    """Return the identity of the store in *directory*, durable; None outside a broker group.

    Args:
        directory: The store's directory.
        replica_id: As in the settings; None: a standalone broker.
        mode: The flush mode from now on.
        mark: The note of the last process; None: it has closed the store.

    Raises:
        WrongReplicaError: The store belongs to another replica, or to a group.
        OSError: The identity cannot be read, or the new one cannot be written.
    """
    known = stored_identity(directory, replica_id)
    if replica_id is None:
        return None
    if known is None or not _has_log(directory):
        return _write(directory, Identity(replica_id, _new_uid()))
    if may_have_lost(mark, boot_id=boot_id(), is_sync=mode is FlushMode.SYNC):
        doubted = known.doubted(_new_uid())
        logger.warning(
            "the machine went down, and unflushed messages may be lost: this replica is a new "
            "member of its group",
            replica_id=replica_id,
            uid=doubted.uid,
            former_uid=known.uid,
        )
        return _write(directory, doubted)
    return known


def doubt_identity(directory: Path) -> None:
    """Give the store in *directory* another uid if it has one: durable records are about to go.

    Raises:
        OSError: The new identity is not durable.
    """
    if (known := _read(directory)) is not None:
        _write(directory, known.doubted(_new_uid()))


def remember_row(directory: Path, known: Change) -> None:
    """Store durably that a process of the store in *directory* knows this row of its group.

    Raises:
        OSError: It is not durable.
    """
    identity = _read(directory)
    if identity is not None and identity.known < known:
        _write(directory, replace(identity, known=known))


def current_identity(directory: Path) -> Identity | None:
    """Return the identity of the open store in *directory*; None if it has none."""
    return _read(directory)


def read_mark(directory: Path) -> OpenMark | None:
    """Return the note of the last process that opened the store; None if it has closed it."""
    try:
        content = read_file(directory / ABORT_NAME, _MARK_SIZE_MAX)
    except FileNotFoundError:
        return None
    except OSError:
        return OpenMark(None, is_sync=False)
    match content.decode("ascii", "replace").split():
        case [boot, (FlushMode.SYNC | FlushMode.ASYNC) as mode]:
            return OpenMark(None if boot == _NO_BOOT_ID else boot, is_sync=mode == FlushMode.SYNC)
    return OpenMark(None, is_sync=False)


def mark_as_open(directory: Path, mode: FlushMode) -> bool:
    """Note that the store is open; return False if there is no room for that.

    Raises:
        OSError: The disk refuses.
    """
    try:
        _write_mark(directory, OpenMark(boot_id(), is_sync=mode is FlushMode.SYNC))
        sync_directory(directory)  # else the mark could be lost in a power failure
    except OSError as error:
        if not is_scarcity(error):
            raise
        return False
    return True


def doubt_mark(directory: Path, mode: FlushMode) -> None:
    """Withdraw the note of the kernel: it may have dropped bytes that it could not write.

    Raises:
        OSError: The disk refuses.
    """
    _write_mark(directory, OpenMark(None, is_sync=mode is FlushMode.SYNC))


def boot_id() -> str | None:
    """Return the id of this run of the kernel; None if it has none."""
    try:
        return BOOT_ID_PATH.read_text("ascii").strip() or None
    except OSError:
        return None


def _write_mark(directory: Path, mark: OpenMark) -> None:
    mode = FlushMode.SYNC if mark.is_sync else FlushMode.ASYNC
    content = f"{mark.boot_id or _NO_BOOT_ID} {mode}\n".encode()
    descriptor = os.open(directory / ABORT_NAME, os.O_WRONLY | os.O_CREAT, FILE_MODE)
    try:
        os.pwrite(descriptor, content, 0)  # over the old one: a kill must not leave it empty
        os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)


def _read(directory: Path) -> Identity | None:
    """Return the stored identity; None without one, or if it is damaged: then it proves nothing."""
    path = directory / DIRECTORY / REPLICA_NAME
    try:
        stored = read_checked(path, _Stored)
        known = Change(stored.known_epoch, stored.known_number)
        return Identity(stored.replica_id, stored.uid, tuple(stored.former_uids), known)
    except FileNotFoundError:
        return None
    except (UnfitFileError, IsADirectoryError, ValueError) as error:
        logger.warning(
            "the store's identity is damaged: it is a new member of its group",
            path=str(path),
            fault=str(error),
        )
        return None


def _write(directory: Path, identity: Identity) -> Identity:
    former_uids, known = list(identity.former_uids), identity.known
    stored = _Stored(identity.replica_id, identity.uid, former_uids, known.epoch, known.number)
    write_checked(directory, REPLICA_NAME, stored)
    return identity


def _new_uid() -> str:
    return secrets.token_hex(_UID_SIZE)


def _has_log(directory: Path) -> bool:
    log = directory / "commitlog"
    return log.is_dir() and any(path.name.isdigit() for path in log.iterdir())
