"""Fetch a segment from the tier into a file, each chunk verified before it is written.

A chunk that the file has already is not fetched twice: a killed fetch is continued.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from eruca_broker.core.tier.manifests import DIGEST_SIZE, TierSegment
from eruca_broker.store.tier.sides import DamagedSegmentError
from eruca_broker.store.tiering.place import TierPlace
from eruca_broker.store.tiering.uploads import answered
from eruca_chassis.files.directories import FILE_MODE
from eruca_chassis.finishing import finished_in_thread

FETCHES: Final = 4  # chunks under way

ReadChunk: TypeAlias = Callable[[str, int, int, bytes], Awaitable[bytes]]
"""Returns bytes of an object by its path, the first byte, the one after the last, and the digest.

Raises DamagedSegmentError if they are missing or others.
"""


async def verified(place: TierPlace, path: str, begin: int, end: int, digest: bytes) -> bytes:
    """Return bytes of an object that have a digest.

    Raises:
        DamagedSegmentError: They are missing, or others.
        ErucaError: The tier cannot be read now.
        OSError: The same.
    """
    try:
        async with answered():
            data = await place.read(path, begin, end)
    except FileNotFoundError as error:
        raise DamagedSegmentError(f"the tier lacks {path}") from error
    if await finished_in_thread(lambda: hashlib.sha256(data).digest()) != digest:
        raise DamagedSegmentError(f"{path} of the tier is damaged, bytes {begin} on")
    return data


async def fetch_segment(
    read: ReadChunk,
    segment: TierSegment,
    digests: bytes,
    path: Path,
    *,
    fetches: int = FETCHES,
    rate_max: int = 0,
    done: Callable[[int], None] = lambda _: None,
) -> None:
    """Write a segment's file, durably.

    Args:
        read: Reads the chunks.
        segment: The segment.
        digests: SHA-256 of each of its chunks, one after another.
        path: The file; perhaps a killed fetch has left it.
        fetches: Chunks under way together.
        rate_max: Bytes a second, of each of them; 0: as fast as possible.
        done: Called with the size of each chunk that is there.

    Raises:
        DamagedSegmentError: A chunk is missing or damaged.
        ErucaError: The tier cannot be read now.
        OSError: The same, or the disk refuses.
    """
    is_known = await asyncio.to_thread(path.exists)
    size = segment.end - segment.base
    descriptor = await finished_in_thread(partial(_allocated, path, size))
    loop = asyncio.get_running_loop()

    async def fetch_chunks(chunks: Iterator[int]) -> None:
        """Fetch the next one of *chunks* that is missing, until there is none."""
        for begin in chunks:
            begun = loop.time()
            end = min(begin + segment.chunk_size, size)
            at = begin // segment.chunk_size * DIGEST_SIZE
            digest = digests[at : at + DIGEST_SIZE]
            has = partial(_has, descriptor, begin, end - begin, digest)
            if not (is_known and await finished_in_thread(has)):
                data = await read(segment.path, begin, end, digest)
                await finished_in_thread(partial(_write, descriptor, begin, data))
                if rate_max:
                    await asyncio.sleep(max((end - begin) / rate_max - (loop.time() - begun), 0))
            done(end - begin)

    try:
        chunks = iter(range(0, size, segment.chunk_size))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(fetches):
                    group.create_task(fetch_chunks(chunks))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        await finished_in_thread(partial(os.fsync, descriptor))
    finally:
        os.close(descriptor)


def _allocated(path: Path, size: int) -> int:
    """Return the descriptor of a file with all its blocks: a full disk is noticed here."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        os.ftruncate(descriptor, size)
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        os.close(descriptor)
        raise OSError(error.errno, error.strerror, str(path)) from error
    return descriptor


def _has(descriptor: int, begin: int, size: int, digest: bytes) -> bool:
    return hashlib.sha256(os.pread(descriptor, size, begin)).digest() == digest


def _write(descriptor: int, begin: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, begin)
        rest, begin = rest[written:], begin + written
