"""Keep the exported parts beside the future file, so that a rerun continues.

``flights.parquet.parts/`` has two kinds of files. ``plan.json`` has the plan and its columns, which
never change. There is one file for each complete partition of the plan. A part is made durable and
then renamed, so an existing part is complete. At the end the parts are written into the file, the
file is renamed, and the parts are deleted. If a run fails before its first part, the directory is
deleted as well. A run locks the directory, so a second run for the same file is refused.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, Self

import msgspec

from eruca.contract.errors import ConflictError
from eruca.contract.exports import DamagedRows, ExportPartition, ExportPlan
from eruca.objects.durable_files import make_durable

if sys.platform != "win32":
    import fcntl

DIRECTORY_SUFFIX: Final = ".parts"
_PLAN: Final = "plan.json"
_VERSION: Final = 2  # of its content


class ExportRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The request of an export; a rerun must have the same request."""

    topic: str
    media_type: str
    columns: str | None
    since: str | None
    until: str | None
    damaged: DamagedRows = "refuse"


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of ``plan.json``."""

    request: ExportRequest
    plan: msgspec.Raw
    version: int = 1  # of parts whose ranges have no topic id


class ExportParts:
    """The parts of one export; made by :meth:`begun` or :meth:`found`."""

    def __init__(self, directory: Path, request: ExportRequest, plan: ExportPlan) -> None:
        self.request = request
        self.plan = plan
        self._directory = directory

    @classmethod
    def found(cls, target: Path, request: ExportRequest) -> Self | None:
        """Return the parts of an earlier run for *target*; None if there was none.

        Raises:
            ConflictError: That run had another request.
        """
        directory = directory_of(target)
        try:
            kept = msgspec.json.decode((directory / _PLAN).read_bytes(), type=_Kept)
            plan = ExportPlan.model_validate_json(bytes(kept.plan))
        except FileNotFoundError:
            return None
        # the first is a subclass of the second since msgspec 0.21
        except (msgspec.DecodeError, ValueError) as error:
            raise _conflict(directory, f"cannot be read: {error}") from None
        if kept.version != _VERSION:
            raise _conflict(
                directory,
                f"are of version {kept.version}, expected {_VERSION}: another version of eruca"
                " wrote them, without the topic's id",
                fix="use --restart to export the topic's present messages",
            )
        # Parts of an export that refused damaged messages contain none.
        allowed = (kept.request, msgspec.structs.replace(kept.request, damaged="mark"))
        if request not in allowed:
            raise _conflict(directory, f"belong to another export: {_shown(kept.request)}")
        return cls(directory, request, plan)

    @classmethod
    def begun(cls, target: Path, request: ExportRequest, plan: ExportPlan) -> Self:
        """Return the parts of a new export; delete those of an earlier one."""
        directory = directory_of(target)
        directory.mkdir(exist_ok=True)
        for left in directory.iterdir():
            left.unlink()
        kept = _Kept(request, msgspec.Raw(plan.model_dump_json().encode()), _VERSION)
        _write_whole(directory / _PLAN, msgspec.json.encode(kept))
        return cls(directory, request, plan)

    def path(self, partition: ExportPartition) -> Path:
        """Return the path of a partition's part, whether it exists or not."""
        return self._directory / f"{partition.index:06d}"

    def missing(self) -> list[ExportPartition]:
        """Return the partitions that are still missing."""
        return [p for p in self.plan.partitions if not self.path(p).exists()]

    def open_part(self, partition: ExportPartition) -> BinaryIO:
        """Return a file for writing a partition; :meth:`keep` makes it the part."""
        return self.unfinished(partition).open("wb")

    def keep(self, partition: ExportPartition) -> None:
        """Make the written file the partition's part, durably."""
        make_durable(self.unfinished(partition))
        self.unfinished(partition).replace(self.path(partition))

    def delete(self) -> None:
        """Delete all parts, because the file is complete."""
        shutil.rmtree(self._directory)

    @property
    def is_empty(self) -> bool:
        """True if there is no part yet."""
        return len(self.missing()) == len(self.plan.partitions)

    def delete_if_empty(self) -> None:
        """Delete everything if there is no part to continue with."""
        if self.is_empty:
            self.delete()

    def unfinished(self, partition: ExportPartition) -> Path:
        """Return the path at which a partition is written."""
        return self._directory / f"{partition.index:06d}.unfinished"


@contextmanager
def reserved(target: Path) -> Iterator[None]:
    """Lock the parts of *target* for this process, until it or the block ends.

    Raises:
        ConflictError: Another process has the lock.
    """
    if sys.platform == "win32":  # directories cannot be locked on Windows
        yield
        return
    directory = directory_of(target)
    lock = _locked(directory)
    if lock is None:
        raise ConflictError(
            f"another process is exporting to {target}",
            fix="wait until it ends, or export to another file",
        )
    try:
        yield
    finally:
        with suppress(OSError):  # there are parts to continue with, or the directory is gone
            directory.rmdir()
        os.close(lock)


def _locked(directory: Path) -> int | None:
    """Return the descriptor that locks *directory*; None if another process has the lock."""
    while True:
        directory.mkdir(exist_ok=True)
        try:
            lock = os.open(directory, os.O_RDONLY)
        except FileNotFoundError:  # another process has just ended and deleted it
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_of(lock, directory):
                return lock
        except BlockingIOError:
            os.close(lock)
            return None
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)  # the locked directory was deleted meanwhile


def _is_of(descriptor: int, directory: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), directory.stat())
    except FileNotFoundError:
        return False


def directory_of(target: Path) -> Path:
    """Return the directory for the parts of *target*."""
    return target.with_name(target.name + DIRECTORY_SUFFIX)


def _write_whole(path: Path, data: bytes) -> None:
    """Write a file that appears only when it is complete."""
    unfinished = path.with_name(path.name + ".unfinished")
    with unfinished.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def _conflict(
    directory: Path, what: str, *, fix: str = "finish that export, or use --restart"
) -> ConflictError:
    return ConflictError(f"the parts in {directory} {what}", fix=fix)


def _shown(request: ExportRequest) -> str:
    fields: Mapping[str, str | None] = msgspec.to_builtins(request)
    return ", ".join(f"{name} {value}" for name, value in fields.items() if value is not None)
