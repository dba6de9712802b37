"""Find out whether bytes of files are in memory, so that the event loop never waits for a disk.

Readers touch the log's mapping, and read the files of queues and index, on the event loop's thread.
A page that is not in memory would stop everyone, senders included. So a read for a client is an
*attempt*: :func:`attempt` runs it, and it ends with :class:`NotInMemoryError` before it touches
such a page. :mod:`eruca_broker.store.reading.cold_reads` then has a thread read the missing
stretches, and the read is attempted again. Reads outside an attempt (recovery, the dispatcher,
other threads) read at once, as they always did.

A page can leave memory after the question. Then the loop waits for it, as for any page fault; the
process's major faults count it. For the same reason an answer is trusted for a second: the kernel
is not asked again about pages that were just there. Nor is it asked about what was just written.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from math import inf
from time import monotonic
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np

from eruca.core.messages.record_columns import Int64Array
from eruca_broker.core.native.library import address_of_array, in_memory_until

GAP_SIZE_MAX: Final = 64 * 1024  # bytes between stretches that are read together
_SPAN_SIZE_MAX: Final = 8 * 1024 * 1024  # bytes that are asked about together at first
TRUST_SECONDS: Final = 1.0  # time in which a page that was in memory is taken to be there
_ASKED_AHEAD_SIZE: Final = 256 * 1024  # bytes that are asked about together with those before
_READ_AT_MAX: Final = 4_096  # pages of files whose last read is remembered
_KNOWN_MAX: Final = 256  # stretches of a mapping that are remembered
_PART_BITS: Final = 20
_PAGE_BITS: Final = 12
_NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)  # 0: this system has no such read
_REFUSALS: Final = frozenset((errno.EAGAIN, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS))
_T = TypeVar("_T")


class Stretch(NamedTuple):
    """Bytes of a file."""

    path: str
    begin: int
    end: int


Fetch: TypeAlias = Callable[[], Coroutine[Any, Any, int]]
"""Brings bytes from another machine to this one; returns their number."""


class NotInMemoryError(Exception):
    """A read stopped before bytes that are not in memory; it can be repeated once they are.

    Args:
        stretches: The bytes.
        fetch: Brings them from another machine; None: they are in files here.
    """

    def __init__(self, stretches: list[Stretch], fetch: Fetch | None = None) -> None:
        super().__init__(stretches)
        self.stretches = stretches
        self.fetch = fetch


# A descriptor may be another file's by now: then one read may wait, as if its pages had just left.
_read_at: Final[dict[tuple[int, int, int], float]] = {}


class _Thread(threading.local):
    is_attempting = False


_thread = _Thread()


def attempt(read: Callable[[], _T]) -> _T:
    """Return the result of *read*, which must be repeatable.

    Raises:
        NotInMemoryError: It needs bytes that are not in memory.
    """
    before, _thread.is_attempting = _thread.is_attempting, True
    try:
        return read()
    finally:
        _thread.is_attempting = before


def at_once(read: Callable[[], _T]) -> _T:
    """Return the result of *read*, which waits for the disk: for what must not be repeated."""
    before, _thread.is_attempting = _thread.is_attempting, False
    try:
        return read()
    finally:
        _thread.is_attempting = before


def is_attempting() -> bool:
    """Tell whether this thread is in an attempt."""
    return _thread.is_attempting


class Mapped:
    """A mapped file, asked about before its bytes are touched."""

    __slots__ = ("_known", "_older", "_recent", "_size", "_written_to", "address", "path")

    def __init__(self, path: str, buffer: mmap.mmap) -> None:
        self.path = path
        self._size = len(buffer)
        # Everything from there on was written at that time or later; the time is monotonic.
        self._recent = self._older = (self._size, -inf)
        self._written_to = 0
        # By the MiB of its beginning: a stretch that was in memory at a time.
        self._known: dict[int, tuple[int, int, float]] = {}
        # The array goes at once: it would keep the mapping from being closed.
        self.address = address_of_array(np.frombuffer(buffer, np.uint8), np.uint8)

    def missing(self, begin: int, end: int) -> list[Stretch]:
        """Return the bytes from *begin* to *end* if some are not in memory, in an attempt."""
        if not _thread.is_attempting:
            return []
        now = monotonic()
        for first, written_at in (self._older, self._recent):
            if first <= begin and end <= self._written_to and now - written_at <= TRUST_SECONDS:
                return []  # mostly: what a reader at the log's end reads
        part = begin >> _PART_BITS
        known = self._known.get(part)
        if known is not None:
            first, last, asked_at = known
            if first <= begin and end <= last and now - asked_at <= TRUST_SECONDS:
                return []
        # The next reads go on behind this one.
        until = in_memory_until(self.address, begin, min(end + _ASKED_AHEAD_SIZE, self._size))
        if until < end:
            return [Stretch(self.path, begin, end)]
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[part] = begin, until, now
        return []

    def written(self, begin: int, end: int) -> None:
        """Note that the bytes from *begin* to *end* were just written, and so are in memory."""
        now = monotonic()
        if begin != self._written_to:
            self._older = self._recent = begin, now
        elif now - self._recent[1] > TRUST_SECONDS / 2:
            self._older, self._recent = self._recent, (begin, now)
        self._written_to = end

    def need(self, begin: int, end: int) -> None:
        """Go on if the bytes from *begin* to *end* are in memory, or outside an attempt.

        Raises:
            NotInMemoryError: They are not.
        """
        if missing := self.missing(begin, end):
            raise NotInMemoryError(missing)

    def need_all(self, begins: Int64Array, sizes: Int64Array) -> None:
        """Go on if all these stretches, which ascend, are in memory, or outside an attempt.

        Raises:
            NotInMemoryError: Some are not.
        """
        if not _thread.is_attempting:
            return
        first, last = int(begins[0]), int(begins[-1] + sizes[-1])
        if 0 <= last - first <= _SPAN_SIZE_MAX and not self.missing(first, last):
            return  # mostly: one question instead of many
        missing: list[Stretch] = []
        for begin, end in _joined(begins.tolist(), sizes.tolist()):
            missing += self.missing(begin, end)
        if missing:
            raise NotInMemoryError(missing)


def _joined(begins: list[int], sizes: list[int]) -> Iterator[tuple[int, int]]:
    """Yield begin and end of stretches that lie near each other, as one."""
    begin, end = begins[0], begins[0] + sizes[0]
    for at, size in zip(begins, sizes, strict=True):
        if not begin <= at <= end + GAP_SIZE_MAX:
            yield begin, end
            begin, end = at, at + size
        end = max(end, at + size)
    yield begin, end


def read_now(descriptor: int, data: bytearray, position: int) -> int:
    """Read what is in memory into *data*; return the bytes read.

    Raises:
        OSError: Nothing is (EAGAIN), or this file cannot be read in that way.
    """
    return os.preadv(descriptor, (data,), position, _NOWAIT)


def pread(descriptor: int, size: int, position: int) -> bytes:
    """Read as :func:`os.pread` does; in an attempt only what is in memory.

    Raises:
        NotInMemoryError: The bytes are not in memory, in an attempt.
    """
    if _thread.is_attempting and _NOWAIT and size:
        place = (descriptor, position >> _PAGE_BITS, (position + size - 1) >> _PAGE_BITS)
        now = monotonic()
        if now - _read_at.get(place, 0.0) <= TRUST_SECONDS:
            return os.pread(descriptor, size, position)
        data = bytearray(size)
        try:
            if read_now(descriptor, data, position) == size:
                if len(_read_at) >= _READ_AT_MAX:
                    _read_at.clear()
                _read_at[place] = now
                return bytes(data)
        except OSError as error:
            if error.errno not in _REFUSALS:
                raise
            is_cold = error.errno == errno.EAGAIN
        else:  # the rest is not in memory, or beyond the file's end
            is_cold = position + size <= os.fstat(descriptor).st_size
        if is_cold:
            path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - it is no path
            raise NotInMemoryError([Stretch(path, position, position + size)])
    return os.pread(descriptor, size, position)


def read_at(path: str, size: int, position: int) -> bytes:
    """Return bytes of the file at *path*; in an attempt only what is in memory.

    Raises:
        NotInMemoryError: The bytes are not in memory, in an attempt.
        OSError: They cannot be read, or the file is missing.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _thread.is_attempting and _NOWAIT and size:
            data = bytearray(size)
            try:
                if read_now(descriptor, data, position) == size:
                    return bytes(data)
            except OSError as error:
                if error.errno not in _REFUSALS:
                    raise
                is_cold = error.errno == errno.EAGAIN
            else:
                is_cold = position + size <= os.fstat(descriptor).st_size
            if is_cold:
                raise NotInMemoryError([Stretch(path, position, position + size)])
        return os.pread(descriptor, size, position)
    finally:
        os.close(descriptor)
