"""A lake's files: on this machine, or in any of Hadoop's file systems.

Paths are relative to the lake, with ``/`` as separator. A file appears complete or not at all: it
is written beside its place, made durable, and renamed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

_LOCK_FILE: Final = "_export.lock"
_BATCH_LOCK: Final = "_batch.lock"  # held while a batch is written, or a partition is exchanged
READERS_LOCK: Final = "_readers.lock"  # shared by readers
_ABANDONED_SECONDS: Final = 6 * 3600.0  # no running job's staging directory is so old


class LakeBusyError(Exception):
    """Another export writes to this lake, or a reader or a maintenance holds it."""


class LakeFiles(Protocol):
    """The operations of a file system that a lake needs."""

    def glob(self, pattern: str) -> list[tuple[str, int]]:
        """Return the paths and sizes of all matches, sorted; directories have size 0."""

    def read(self, path: str) -> str | None:
        """Return a file's text; None if it does not exist."""

    def write(self, path: str, text: str) -> None:
        """Write a file; replace an existing one."""

    def make_durable(self, paths: Iterable[str]) -> None:
        """Return when files written by Spark would survive a power cut."""

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with its content."""

    def abandoned(self, pattern: str) -> list[str]:
        """Return the matching paths to which no running job can be writing."""

    def locked(self) -> AbstractContextManager[None]:
        """Hold the lake's lock, if the file system has locks."""

    def writing(self) -> AbstractContextManager[None]:
        """Wait until no other process changes the data files, and keep others from it."""

    def reading(self) -> AbstractContextManager[None]:
        """Keep the files of the lake: a maintenance replaces none until the block ends."""

    def unread(self) -> AbstractContextManager[None]:
        """Keep readers waiting, if none holds the lake."""


def is_local(root: str) -> bool:
    """Tell whether *root*, a path or a URI, is on this machine."""
    return urlsplit(root).scheme in ("", "file")


def lake_files(spark: SparkSession | None, root: str) -> LakeFiles:
    """Return the files below *root*, a path or a URI; only those on this machine need no Spark."""
    if is_local(root):
        return LocalFiles(Path(urlsplit(root).path if urlsplit(root).scheme else root).absolute())
    assert spark is not None, f"{root} is not on this machine"
    return HadoopFiles(spark, root)


class LocalFiles:
    """Files on this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def glob(self, pattern: str) -> list[tuple[str, int]]:
        """Return the paths and sizes of all matches, sorted."""
        found = []
        for path in self._root.glob(pattern):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # deleted since it was listed
            size = status.st_size if stat.S_ISREG(status.st_mode) else 0
            found.append((path.relative_to(self._root).as_posix(), size))
        return sorted(found)

    def read(self, path: str) -> str | None:
        """Return a file's text; None if it does not exist."""
        try:
            return (self._root / path).read_text()
        except FileNotFoundError:
            return None

    def write(self, path: str, text: str) -> None:
        """Write a file durably; replace an existing one."""
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        with beside.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            adopt(beside, target)
        beside.replace(target)
        self._sync_folders_above([path])

    def make_durable(self, paths: Iterable[str]) -> None:
        """Return when files written by Spark, and their directories, would survive a power cut."""
        written = list(paths)
        for path in written:
            _sync(self._root / path)
        self._sync_folders_above(written)

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with its content."""
        target = self._root / path
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)

    def abandoned(self, pattern: str) -> list[str]:
        """Return the matching paths: the holder of the lock is the only writer."""
        return [path for path, _ in self.glob(pattern)]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lake's lock; the kernel releases it when the process ends in any way.

        Raises:
            LakeBusyError: Another process has the lock.
        """
        self._root.mkdir(parents=True, exist_ok=True)
        with self._lock(_LOCK_FILE, fcntl.LOCK_EX | fcntl.LOCK_NB, "another export is writing to"):
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Wait until no other process changes the data files, and keep others from it."""
        with self._lock(_BATCH_LOCK, fcntl.LOCK_EX):
            yield

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep the files of the lake: a maintenance replaces none until the block ends.

        A reader that may not create the lock file, in a lake without one, has no lock.
        """
        path = self._root / READERS_LOCK
        if not path.exists() and not os.access(self._root, os.W_OK):
            yield
            return
        with self._lock(READERS_LOCK, fcntl.LOCK_SH):
            yield

    @contextmanager
    def unread(self) -> Iterator[None]:
        """Keep readers waiting, if none holds the lake.

        Raises:
            LakeBusyError: A reader holds it.
        """
        with self._lock(READERS_LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB, "a job is reading"):
            yield

    @contextmanager
    def _lock(self, name: str, operation: int, busy: str = "") -> Iterator[None]:
        path = self._root / name
        # Readers need no right to write; NFS requires it for an exclusive lock.
        is_shared = operation == fcntl.LOCK_SH and path.exists()
        with path.open("r" if is_shared else "a") as file:
            try:
                fcntl.flock(file, operation)
            except BlockingIOError as error:
                raise LakeBusyError(f"{busy} {self._root}") from error
            yield

    def _sync_folders_above(self, paths: Iterable[str]) -> None:
        folders = {folder for path in paths for folder in PurePosixPath(path).parents}
        # the content of a directory before the directory
        for folder in sorted(folders, reverse=True):
            _sync(self._root / folder)


class HadoopFiles:
    """Files in Hadoop's file systems: HDFS, object stores; uses the driver's JVM."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        assert spark.sparkContext._jvm is not None
        self._jvm: Any = spark.sparkContext._jvm
        configuration = spark.sparkContext._jsc.hadoopConfiguration()
        self._root = self._jvm.org.apache.hadoop.fs.Path(root)
        self._files = self._root.getFileSystem(configuration)
        self._root = self._files.makeQualified(self._root)

    def glob(self, pattern: str) -> list[tuple[str, int]]:
        """Return the paths and sizes of all matches, sorted."""
        return sorted((path, size) for path, size, _ in self._statuses(pattern))

    def read(self, path: str) -> str | None:
        """Return a file's text; None if it does not exist."""
        target = self._path(path)
        if not self._files.exists(target):
            return None
        stream = self._files.open(target)
        try:
            text: str = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
            return text
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Write a file; replace an existing one."""
        target, beside = self._path(path), self._path(f"{path}.{os.getpid()}.tmp")
        stream = self._files.create(beside, True)
        try:
            stream.write(bytearray(text.encode()))
            stream.hsync()
        finally:
            stream.close()
        self._files.delete(target, False)
        if not self._files.rename(beside, target):
            raise OSError(f"{beside.toString()} could not be renamed")

    def make_durable(self, paths: Iterable[str]) -> None:
        """Do nothing: the file system determines the durability of a closed file."""

    def delete(self, path: str) -> None:
        """Delete a file, or a directory with its content."""
        self._files.delete(self._path(path), True)

    def abandoned(self, pattern: str) -> list[str]:
        """Return the matching paths that are too old for a running job: there are no locks."""
        oldest = (time.time() - _ABANDONED_SECONDS) * 1000
        return [path for path, _, changed in self._statuses(pattern) if changed < oldest]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Yield: there are no locks; Spark's checkpoint stops the later of two exports."""
        yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Yield: there is no maintenance on these file systems."""
        yield

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Yield: there is no maintenance on these file systems."""
        yield

    @contextmanager
    def unread(self) -> Iterator[None]:
        """Yield: there is no maintenance on these file systems."""
        yield

    def _path(self, path: str) -> Any:  # noqa: ANN401 - a JVM object
        return self._jvm.org.apache.hadoop.fs.Path(self._root, path)

    def _statuses(self, pattern: str) -> list[tuple[str, int, float]]:
        prefix = self._root.toString().rstrip("/") + "/"
        found = self._files.globStatus(self._path(pattern)) or []
        return [
            (
                status.getPath().toString().removeprefix(prefix),
                status.getLen() if status.isFile() else 0,
                status.getModificationTime(),
            )
            for status in found
        ]


def adopt(path: Path, other: Path) -> None:
    """Give a file or directory the mode of *other* and, as far as permitted, owner and group.

    Raises:
        FileNotFoundError: There is no *other*.
    """
    status = other.stat()
    # Only root may give files away; others may choose between their own groups.
    with suppress(PermissionError):
        os.chown(path, -1, status.st_gid)
    with suppress(PermissionError):
        os.chown(path, status.st_uid, -1)
    path.chmod(stat.S_IMODE(status.st_mode))  # last: a change of the owner clears bits


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
