"""Keep the exported parts beside the future file, so that a rerun continues.

``flights.parquet.parts/`` holds ``plan.json``, what is exported in which columns, fixed once and
for all, and a file for each partition of the plan that is complete. A part is made durable and then
renamed, so one that is there is whole. At the end the parts become the file, which is renamed as
well, and are deleted; so are parts of which there is none yet, when a run fails. While a run lasts,
it has the directory locked: another one into the same file is refused.
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

from eruca.cli.exporting.files import make_durable
from eruca.contract.errors import ConflictError
from eruca.contract.exports import DamagedRows, ExportPartition, ExportPlan

if sys.platform != "win32":
    import fcntl

DIRECTORY_SUFFIX: Final = ".parts"
_PLAN: Final = "plan.json"
_VERSION: Final = 2  # of what is in it


class ExportRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The request of an export; a rerun must have the same."""

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
    version: int = 1  # of parts whose ranges do not say of which topic they are


class ExportParts:
    """The parts of one export; made by :meth:`begun` or :meth:`found`."""

    def __init__(self, directory: Path, request: ExportRequest, plan: ExportPlan) -> None:
        self.request = request
        self.plan = plan
        self._directory = directory

    @classmethod
    def found(cls, target: Path, request: ExportRequest) -> Self | None:
        """Return the parts of an earlier run for *target*; None where there was none.

        Raises:
            ConflictError: That run was asked for something else.
        """
        directory = directory_of(target)
        try:
            kept = msgspec.json.decode((directory / _PLAN).read_bytes(), type=_Kept)
            plan = ExportPlan.model_validate_json(bytes(kept.plan))
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, ValueError) as error:  # one is the other from msgspec 0.21 on
            raise _conflict(directory, f"cannot be read: {error}") from None
        if kept.version != _VERSION:
            raise _conflict(
                directory,
                f"are of version {kept.version}, expected {_VERSION}: another version of eruca "
                "began them, and they do not say whether the topic is still the same",
                fix="give --restart to export what the topic holds now",
            )
        # Parts of an export that refused damaged messages have none.
        allowed = (kept.request, msgspec.structs.replace(kept.request, damaged="mark"))
        if request not in allowed:
            raise _conflict(directory, f"are of another export, of {_shown(kept.request)}")
        return cls(directory, request, plan)

    @classmethod
    def begun(cls, target: Path, request: ExportRequest, plan: ExportPlan) -> Self:
        """Return the parts of a new export; what an earlier one has left is deleted."""
        directory = directory_of(target)
        directory.mkdir(exist_ok=True)
        for left in directory.iterdir():
            left.unlink()
        kept = _Kept(request, msgspec.Raw(plan.model_dump_json().encode()), _VERSION)
        _write_whole(directory / _PLAN, msgspec.json.encode(kept))
        return cls(directory, request, plan)

    def path(self, partition: ExportPartition) -> Path:
        """Return the file of a partition, whether or not it is there."""
        return self._directory / f"{partition.index:06d}"

    def missing(self) -> list[ExportPartition]:
        """Return the partitions that are still to be read."""
        return [p for p in self.plan.partitions if not self.path(p).exists()]

    def open_part(self, partition: ExportPartition) -> BinaryIO:
        """Return a file to write a partition to; :meth:`keep` makes it the part."""
        return self.unfinished(partition).open("wb")

    def keep(self, partition: ExportPartition) -> None:
        """Have what was written be the partition's part from now on, whatever happens."""
        make_durable(self.unfinished(partition))
        self.unfinished(partition).replace(self.path(partition))

    def delete(self) -> None:
        """Delete all parts: the file is there."""
        shutil.rmtree(self._directory)

    @property
    def is_empty(self) -> bool:
        """True if there is no part yet."""
        return len(self.missing()) == len(self.plan.partitions)

    def delete_if_empty(self) -> None:
        """Delete everything unless there is a part: there is nothing to go on from."""
        if self.is_empty:
            self.delete()

    def unfinished(self, partition: ExportPartition) -> Path:
        """Return where a partition is written to."""
        return self._directory / f"{partition.index:06d}.unfinished"


@contextmanager
def reserved(target: Path) -> Iterator[None]:
    """Have the parts of *target* for this process alone, until it ends or the block does.

    Raises:
        ConflictError: Another process has them.
    """
    if sys.platform == "win32":  # no directory can be locked there
        yield
        return
    directory = directory_of(target)
    lock = _locked(directory)
    if lock is None:
        raise ConflictError(
            f"another process exports to {target} just now",
            fix="wait until it has ended, or export to another file",
        )
    try:
        yield
    finally:
        with suppress(OSError):  # there are parts to go on from, or the directory is gone
            directory.rmdir()
        os.close(lock)


def _locked(directory: Path) -> int | None:
    """Return the descriptor that keeps *directory* locked; None where another process has it."""
    while True:
        directory.mkdir(exist_ok=True)
        try:
            lock = os.open(directory, os.O_RDONLY)
        except FileNotFoundError:  # another process has just ended, and deleted it
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
        os.close(lock)  # what we have locked was deleted meanwhile


def _is_of(descriptor: int, directory: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), directory.stat())
    except FileNotFoundError:
        return False


def directory_of(target: Path) -> Path:
    """Return where the parts of *target* are."""
    return target.with_name(target.name + DIRECTORY_SUFFIX)


def _write_whole(path: Path, data: bytes) -> None:
    """Write a file that is there only once it is whole."""
    unfinished = path.with_name(path.name + ".unfinished")
    with unfinished.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def _conflict(
    directory: Path, what: str, *, fix: str = "finish that export, or give --restart"
) -> ConflictError:
    return ConflictError(f"the parts in {directory} {what}", fix=fix)


def _shown(request: ExportRequest) -> str:
    fields: Mapping[str, str | None] = msgspec.to_builtins(request)
    return ", ".join(f"{name} {value}" for name, value in fields.items() if value is not None)
