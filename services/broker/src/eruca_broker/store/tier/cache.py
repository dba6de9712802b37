"""The tier's cache: verified bytes of objects in files, up to a size.

A **blob** is a part of an object whose SHA-256 is known: a chunk, or a head. It is fetched once,
however many readers wait for it, and compared with its digest before it gets its place. Its file
has the digest as its name. The least recently used ones are deleted. The directory is emptied at
each start, so a file in it was verified by this process.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import shutil
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import structlog

from eruca.contract.errors import ErucaError, UnavailableError
from eruca_chassis.finishing import finished_in_thread

FETCH_SECONDS: Final = 20.0  # for one blob; then its readers get 503, and may repeat
READ_SECONDS: Final = 20.0  # for the blobs of one read; it is repeated for those behind
_RETRY_AFTER_SECONDS: Final = 2.0

_log = structlog.get_logger(__name__)


Read: TypeAlias = Callable[[str, int, int], Awaitable[bytes]]


class Blob(NamedTuple):
    """A part of an object."""

    path: str
    begin: int
    end: int
    digest: bytes  # SHA-256

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.begin


class TierCache:
    """The files of one store's cache. All methods are called on the loop's thread.

    Args:
        directory: The cache's own; it is emptied.
        read: Returns bytes of an object, by its path, the first byte and the one after the last.
        size_max: Maximum bytes of all files.
        on_missing: Called when an object is missing: a later manifest may not name it any more.
    """

    def __init__(
        self,
        directory: Path,
        read: Read,
        size_max: int,
        on_missing: Callable[[], None] = lambda: None,
    ) -> None:
        self.size = 0  # bytes of all files
        self.size_max = size_max
        self.fetched_count = 0
        self.fetched_size = 0  # bytes
        self.damaged_count = 0  # blobs that differed from their digests
        self._directory = directory
        self._read = read
        self._on_missing = on_missing
        self._files: OrderedDict[bytes, int] = OrderedDict()  # sizes, the next to be deleted first
        self._fetching: dict[bytes, asyncio.Task[None]] = {}
        self._is_closed = False

    async def open(self) -> None:
        """Empty the directory.

        Raises:
            OSError: The disk refuses.
        """
        await asyncio.to_thread(_emptied, self._directory)

    async def close(self) -> None:
        """Cancel what is being fetched, and refuse to fetch more.

        No thread writes to the directory any more: the next role's cache may use it.
        """
        self._is_closed = True
        fetches = [*self._fetching.values()]
        for fetch in fetches:
            fetch.cancel()
        await asyncio.gather(*fetches, return_exceptions=True)

    def find(self, blob: Blob) -> Path | None:
        """Return the file of *blob*; None: it must be fetched."""
        if blob.digest not in self._files:
            return None
        self._files.move_to_end(blob.digest)
        return self._path(blob.digest)

    async def fetch(self, blobs: Iterable[Blob]) -> int:
        """Return once the files of *blobs* are there; return the bytes that were fetched.

        Raises:
            UnavailableError: The tier does not have them now, or has other bytes; or the cache is
                closed.
        """
        size = 0
        now = asyncio.get_running_loop().time
        ends_at: float | None = None  # of the time in which another fetch may begin
        for blob in blobs:
            if blob.digest in self._files:
                continue
            if self._is_closed:
                raise _closed()
            if ends_at is None:
                ends_at = now() + READ_SECONDS
            elif now() >= ends_at:
                raise _unavailable("the tier is slow: some of the bytes have been fetched")
            task = self._fetching.get(blob.digest)
            if task is None:
                task = asyncio.create_task(self._fetch(blob))
                self._fetching[blob.digest] = task
                task.add_done_callback(partial(self._fetched, blob.digest))
                size += blob.size
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                if not task.cancelled():
                    raise  # this request is cancelled, and not the fetch
                raise _closed() from None
        return size

    def forget(self, blob: Blob) -> None:
        """Note that the file of *blob* is not there, although it should be."""
        self.size -= self._files.pop(blob.digest, 0)

    def _fetched(self, digest: bytes, fetch: asyncio.Task[None]) -> None:
        del self._fetching[digest]
        if not fetch.cancelled():
            fetch.exception()  # those who wait for it get it, if anyone still does

    async def _fetch(self, blob: Blob) -> None:
        try:
            read = self._read(blob.path, blob.begin, blob.end)
            data = await asyncio.wait_for(read, FETCH_SECONDS)
        except FileNotFoundError as error:
            self._on_missing()
            raise _unavailable(f"the tier lacks {blob.path}") from error
        except TimeoutError as error:
            raise _unavailable(f"the tier has not answered for {FETCH_SECONDS:.0f} s") from error
        except (ErucaError, OSError) as error:
            raise _unavailable(f"the tier cannot be read: {error}") from error
        digest = await asyncio.to_thread(lambda: hashlib.sha256(data).digest())
        if digest != blob.digest:
            self.damaged_count += 1
            _log.error(
                "an object of the tier is damaged",
                object=blob.path,
                begin=blob.begin,
                end=blob.end,
                fix="restore the object from a copy; a version of the bucket may have it",
            )
            raise _unavailable(f"{blob.path} of the tier is damaged, bytes {blob.begin} on")
        await self._keep(blob, data)
        self.fetched_count += 1
        self.fetched_size += len(data)

    async def _keep(self, blob: Blob, data: bytes) -> None:
        self.size += blob.size
        try:
            await self._make_room(self.size_max)
            try:
                await finished_in_thread(partial(_write, self._path(blob.digest), data))
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                await self._make_room(0)  # the disk's room is needed for the log
                await finished_in_thread(partial(_write, self._path(blob.digest), data))
        except BaseException as error:
            self.size -= blob.size
            if isinstance(error, OSError):
                raise _unavailable(f"the tier's cache cannot be written: {error}") from error
            raise
        self._files[blob.digest] = blob.size

    async def _make_room(self, size_max: int) -> None:
        """Delete the least recently used files until the rest has *size_max* bytes at most."""
        paths = []
        while self._files and self.size > size_max:
            digest, freed = self._files.popitem(last=False)
            self.size -= freed
            paths.append(self._path(digest))
        if paths:
            await finished_in_thread(partial(_delete, paths))

    def _path(self, digest: bytes) -> Path:
        return self._directory / digest.hex()


def _unavailable(detail: str) -> UnavailableError:
    return UnavailableError(
        detail,
        fix="repeat the request; check the object store if it stays so: messages behind the "
        "beginning of the broker's own log are read from there",
        retry_after_seconds=_RETRY_AFTER_SECONDS,
    )


def _closed() -> UnavailableError:
    return _unavailable("the broker's role has changed, and the tier is opened again")


def _emptied(directory: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(directory)
    directory.mkdir(parents=True)


def _write(path: Path, data: bytes) -> None:
    unfinished = path.with_suffix(".new")
    try:
        unfinished.write_bytes(data)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def _delete(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
