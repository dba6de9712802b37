"""Upload one closed segment: build its side object, and store both, at a bounded pace.

Work in threads rests three times as long as it takes, so that it uses a quarter of one processor.
Bytes leave at a bounded rate. Each byte is compared with the digests that were computed before, so
an object is never other than its head says.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from eruca.contract.errors import UnavailableError
from eruca.objects.repositories import Repository
from eruca_broker.core.tier.manifests import DIGEST_SIZE, UPLOAD_SIZE, TierSegment
from eruca_broker.core.tier.queue_tables import Key, QueueTable, Run, decoded
from eruca_broker.store.reading.readable_log import LogFile
from eruca_broker.store.tier.sides import DamagedSegmentError, Side, digests_of, remove, side_of
from eruca_chassis.finishing import finished_in_thread

ANSWER_SECONDS: Final = 60.0  # for one request, or for the next part of an upload
_REST: Final = 3.0  # times as long as a step took
_REST_SECONDS_MAX: Final = 1.0
_READ_SIZE: Final = 1024 * 1024  # bytes that are read, hashed and passed on together


class Uploaded(NamedTuple):
    """A segment whose objects are whole."""

    segment: TierSegment
    table: QueueTable
    head: bytes


async def upload(
    file: LogFile,
    repository: Repository,
    folder: str,
    *,
    epoch: int,
    before: Mapping[Key, Run],
    is_current: Callable[[Key, Run], bool],
    room: Path,
    chunk_size: int,
    rate_max: int,
) -> Uploaded:
    """Store a closed segment and its side object.

    Args:
        file: The segment.
        repository: The tier.
        folder: The log's, in it.
        epoch: Of the segment's last record.
        before: The last run of each queue in the segment before.
        is_current: Tells whether a queue is still that of an existing topic.
        room: A file that may be written meanwhile.
        chunk_size: Bytes of a chunk.
        rate_max: Bytes a second; 0: as fast as possible.

    Raises:
        DamagedSegmentError: A record is damaged; nothing is stored.
        ErucaError: The tier cannot be written now. Objects may be left, which nobody names.
        OSError: The same, or the disk refuses.
    """
    made: list[Side] = []
    try:
        await in_idle_time(
            side_of(
                file.path,
                file.base_offset,
                room,
                before=before,
                is_current=is_current,
                chunk_size=chunk_size,
                done=made.append,
            )
        )
        [side] = made
        table = decoded(side.head)
        segment = TierSegment(
            base=file.base_offset,
            end=file.end_offset,
            epoch=epoch,
            records=side.records,
            first_ms=side.first_ms,
            last_ms=side.last_ms,
            chunk_size=chunk_size,
            sha256=side.sha256,
            head_size=len(side.head),
            head_sha256=hashlib.sha256(side.head).hexdigest(),
            side_size=len(side.head) + side.body_size,
            upload=secrets.token_hex(UPLOAD_SIZE),
        )
        head = table.head
        stored = ((file.path, head.segment_digests, b""), (room, head.side_digests, side.head))
        for path, (source, digests, first) in zip(segment.paths, stored, strict=True):
            await put_object(
                repository,
                f"{folder}/{path}",
                source,
                digests,
                first=first,
                chunk_size=chunk_size,
                rate_max=rate_max,
            )
    finally:
        await finished_in_thread(lambda: remove(room))
    return Uploaded(segment, table, side.head)


async def put_object(
    repository: Repository,
    path: str,
    source: Path,
    digests: bytes,
    *,
    chunk_size: int,
    rate_max: int,
    first: bytes = b"",
) -> None:
    """Store an object, each chunk of which has its digest, or nothing.

    Args:
        repository: The tier.
        path: The object's, in it.
        source: The file that has its bytes.
        digests: SHA-256 of each chunk of the file, one after another.
        chunk_size: Bytes of a chunk.
        rate_max: Bytes a second; 0: as fast as possible.
        first: Bytes before those of the file.

    Raises:
        DamagedSegmentError: A chunk differs; nothing is stored.
        ErucaError: The tier cannot be written now.
        OSError: The same, or the file cannot be read.
    """
    async with answered() as limit:
        parts = _parts(source, digests, first, chunk_size=chunk_size, rate_max=rate_max)
        await repository.put_parts(path, _watched(parts, limit))


@asynccontextmanager
async def answered() -> AsyncIterator[asyncio.Timeout]:
    """Bound the time of the block, which waits for the tier; yield the bound.

    Raises:
        UnavailableError: The time is over.
    """
    try:
        async with asyncio.timeout(ANSWER_SECONDS) as limit:
            yield limit
    except TimeoutError as error:
        raise UnavailableError(
            f"the tier has not answered for {ANSWER_SECONDS:.0f} s: check the object store, or the "
            "folder's file system, and the way there"
        ) from error


async def _watched(parts: AsyncIterator[bytes], limit: asyncio.Timeout) -> AsyncIterator[bytes]:
    """Yield *parts*; while they are taken, and for a while after the last one, nothing hangs."""
    loop = asyncio.get_running_loop()
    async for part in parts:
        limit.reschedule(loop.time() + ANSWER_SECONDS)
        yield part
    limit.reschedule(loop.time() + ANSWER_SECONDS)


async def equals(file: LogFile, segment: TierSegment) -> bool:
    """Tell whether a segment of the log has the bytes that the tier has.

    Raises:
        OSError: It cannot be read.
    """
    if (file.base_offset, file.end_offset) != (segment.base, segment.end):
        return False
    found: list[bytes] = []
    await in_idle_time(digests_of(file.path, segment.chunk_size, found))
    return hashlib.sha256(b"".join(found)).hexdigest() == segment.sha256


async def in_idle_time(steps: Iterator[None]) -> None:
    """Run *steps* in a thread, one by one, with pauses.

    Raises:
        Exception: That of a step.
    """
    while True:
        begun = time.monotonic()
        if await finished_in_thread(lambda: next(steps, _END)) is _END:
            return
        took = time.monotonic() - begun
        await asyncio.sleep(min(took * _REST, _REST_SECONDS_MAX))


class _End:
    """The end of an iterator."""


_END: Final = _End()


async def _parts(
    path: Path, digests: bytes, first: bytes, *, chunk_size: int, rate_max: int
) -> AsyncIterator[bytes]:
    """Yield *first*, and then the bytes of a file, each chunk of which has its digest.

    Raises:
        DamagedSegmentError: One does not: the file has changed, or the disk is failing.
        OSError: It cannot be read.
    """
    if first:
        yield first
    expected = [digests[at : at + DIGEST_SIZE] for at in range(0, len(digests), DIGEST_SIZE)]
    with path.open("rb", buffering=0) as file:
        for number, digest in enumerate(expected):
            begun = time.monotonic()
            hashed, left = hashlib.sha256(), chunk_size
            while left:
                read = partial(file.read, min(_READ_SIZE, left))
                part = await finished_in_thread(partial(_hashed, read, hashed))
                if not part:
                    break
                left -= len(part)
                yield part
            if hashed.digest() != digest:
                raise DamagedSegmentError(f"{path} has changed, in its chunk {number}")
            if rate_max:
                await asyncio.sleep(
                    max((chunk_size - left) / rate_max - (time.monotonic() - begun), 0)
                )


def _hashed(read: Callable[[], bytes], hashed: hashlib._Hash) -> bytes:
    part = read()
    hashed.update(part)
    return part
