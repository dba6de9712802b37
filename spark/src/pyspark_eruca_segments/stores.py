"""The log in a store's folder: Eruca's or RocketMQ's, whose layouts are the same.

Nothing is locked and nothing is written, so a broker may run on the store meanwhile. DESIGN.md says
up to where such a log is read.

Source: RocketMQ 5.3, ``MappedFileQueue``, ``StoreCheckpoint``.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Final, NamedTuple

from eruca.contract.records import BLANK_SIZE_MIN
from eruca.exporting.errors import OptionError, SourceError
from pyspark_eruca_segments.copies import LogCopy, Stretch
from pyspark_eruca_segments.objects import Source, reading
from pyspark_eruca_segments.walk import Damaged, Proven, walk

COMMIT_LOG: Final = "commitlog"
_NAME_DIGITS: Final = 20
_CHECKPOINT: Final = struct.Struct(">6q")  # five numbers, and the CRC-32 of their bytes
_CHECKPOINT_FLUSHED: Final = 4


class _File(NamedTuple):
    path: Path
    base: int  # log offset of its first byte
    size: int  # bytes

    @property
    def end(self) -> int:
        return self.base + self.size


def log_folder(place: Path) -> Path | None:
    """Return the folder of the log's files in a store, or that folder itself; None: neither."""
    if (place / COMMIT_LOG).is_dir():
        return place / COMMIT_LOG
    return place if place.is_dir() and _names(place) else None


def store_copy(place: Path, broker_name: str) -> LogCopy:
    """Return the log of the store in *place*, or whose log is there, as far as it stays.

    Raises:
        SourceError: A file is missing, or has another length than the others.
    """
    folder = log_folder(place)
    assert folder is not None, "the caller has looked"
    store = folder.parent
    flushed = _flushed_offset(store / "checkpoint")  # before the files: it may grow meanwhile
    files = _files(folder)
    if flushed is not None and flushed > (files[-1].end if files else 0):
        raise SourceError(
            f"{folder}: expected files of the log up to log offset {flushed}, as {store}/checkpoint"
            f" says; found {files[-1].path.name if files else 'none'} as the last one: restore the"
            " others from a backup"
        )
    is_closed = not (store / "abort").exists()
    tail = None
    if flushed is not None:
        end = flushed if is_closed else _last_end(files, flushed)
    else:
        files = _used(files)
        end = max((one.base for one in files), default=0)
        if is_closed and files:
            end, tail = _open_end(files[-1])
    stretches = tuple(
        Stretch(Source(str(folder), None, one.path.name), one.base, min(one.end, end))
        for one in files
        if one.base < end
    )
    note = "; ".join(filter(None, (_note(store, end, is_closed=is_closed), tail)))
    return LogCopy(broker_name, stretches, note or None, may_be_rocketmqs=flushed is None)


def _note(store: Path, end: int, *, is_closed: bool) -> str | None:
    notes = []
    if not is_closed:
        notes.append(
            f"the broker of {store} runs, or was killed: only closed segments are read, up to log"
            f" offset {end}; stop the broker, or read a backup, for the rest"
        )
    if (store / "config" / "replica.json").exists():
        notes.append(
            f"the store in {store} belongs to a broker group, and does not record what its members"
            " have confirmed: an election may truncate its last rows; the tier and backups have"
            " only confirmed ones"
        )
    return "; ".join(notes) or None


def _names(folder: Path) -> list[str]:
    names = (path.name for path in folder.iterdir())
    return sorted(name for name in names if len(name) == _NAME_DIGITS and name.isdecimal())


def _files(folder: Path) -> list[_File]:
    files: list[_File] = []
    for name in _names(folder):
        path = folder / name
        try:
            one = _File(path, int(name), path.stat().st_size)
        except FileNotFoundError:  # retention deletes the oldest ones meanwhile
            files.clear()
            continue
        if files and files[-1].end != one.base:
            raise SourceError(
                f"{path}: expected a file of the log that begins at {files[-1].end}; one is"
                " missing or truncated: restore it from a backup"
            )
        files.append(one)
    return files


def _flushed_offset(path: Path) -> int | None:
    """Return the log offset up to which a broker of Eruca has flushed; None: nobody says so."""
    try:
        data = path.read_bytes()[: _CHECKPOINT.size]
    except FileNotFoundError:
        return None
    if len(data) < _CHECKPOINT.size:
        return None
    numbers = _CHECKPOINT.unpack(data)
    if numbers[-1] != zlib.crc32(data[: _CHECKPOINT.size - 8]):
        return None
    return int(numbers[_CHECKPOINT_FLUSHED])


def _last_end(files: list[_File], offset: int) -> int:
    """Return the end of the last file that ends at an offset or before; 0: none does."""
    return max((one.end for one in files if one.end <= offset), default=0)


def _used(files: list[_File]) -> list[_File]:
    """Return the files without the last ones that have no record yet: made in advance."""
    used = [*files]
    while used and not _begins(used[-1]):
        used.pop()
    return used


def _begins(file: _File) -> bool:
    with file.path.open("rb") as opened:
        return any(opened.read(BLANK_SIZE_MIN))


def _open_end(last: _File) -> tuple[int, str | None]:
    """Return where the last file's sound records end, and what its reader should know of the rest.

    Damage before a sound record does not end the log: the tasks tell it.
    """
    end = last.base
    with reading(Source(str(last.path.parent), None, last.path.name)) as read:
        rest: Damaged | None = None
        for part in walk(read, last.base, last.end):
            if isinstance(part, Proven):
                end = int(part.columns.log_offsets[-1] + part.columns.sizes[-1])
            else:
                rest = part
        if rest is None or rest.log_offset + rest.size < last.end:
            return last.end, None  # its last record or the blank record ends the file
        head = read(end - last.base, min(end + BLANK_SIZE_MIN, last.end) - last.base)
    if not any(head):
        return end, None
    return end, (
        f"{last.path}: bytes that are no record follow the last sound one, from log offset {end}"
        " on: a damaged record, or what RocketMQ left when it truncated the log; they are not read"
    )


def checked_store(place: str) -> Path | None:
    """Return the folder of a store; None: *place* is no folder with a log.

    Raises:
        OptionError: It cannot be looked at.
    """
    try:
        return Path(place) if log_folder(Path(place)) is not None else None
    except OSError as error:
        raise OptionError(f"the path {place} cannot be read: {error.strerror}") from error
