"""A log and a repository in memory, whose every operation is a step that a test can stop at."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Coroutine, Generator
from typing import Any, Final, NamedTuple

from eruca.cli.backups.log_source import Extent, Stretch
from eruca.contract.errors import MessageDamagedError, RecordNotFoundError, StaleEpochError
from eruca.contract.records import (
    BLANK_SIZE_MIN,
    LAYOUT_V4,
    MAGIC_V1,
    RECORD_SIZE_MIN,
    RecordLayout,
)
from eruca.objects.repositories import PathTakenError

SEGMENT_SIZE: Final = 400
LOG_ID: Final = "9f2c51d07ab3e846"


class Step:
    """The place between two operations."""

    def __await__(self) -> Generator[None, None, None]:
        yield


def finished(work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401
    """Run *work* to its end, and return its result."""
    while True:
        try:
            work.send(None)
        except StopIteration as end:
            return end.value


class _Record(NamedTuple):
    begin: int
    data: bytes
    epoch: int


class ModelLog:
    """A log whose end another master may replace, and whose beginning retention deletes."""

    broker_name = "broker-a"

    def __init__(self) -> None:
        self.records: list[_Record] = []
        self.min_offset = 0
        self.end = 0
        self.epoch = 1
        self.durable: int | None = None  # log offset; None: all of it is durable
        self.damaged: int | None = None  # log offset of a damaged record
        self.whole: dict[int, bytes] = {}  # with the records that retention has deleted
        self.versions: list[dict[int, bytes]] = []  # the same before each truncation
        self._count = 0

    def append(self, size: int) -> None:
        """Append a record."""
        self._count += 1
        size = max(size, RECORD_SIZE_MIN)
        base = self.end // SEGMENT_SIZE * SEGMENT_SIZE
        if self.end + size + BLANK_SIZE_MIN > base + SEGMENT_SIZE:
            self.end = base + SEGMENT_SIZE
        data = bytearray(size)
        struct.pack_into(">iI", data, 0, size, MAGIC_V1)
        struct.pack_into(">q", data, RecordLayout.LOG_OFFSET, self.end)
        struct.pack_into(">q", data, LAYOUT_V4.store_timestamp, self._count)
        self.records.append(_Record(self.end, bytes(data), self.epoch))
        self.whole[self.end] = bytes(data)
        self.end += size

    def truncate(self, count: int) -> None:
        """Lose the last records, but for one; another master goes on in another epoch."""
        self.versions.append(dict(self.whole))
        del self.records[max(len(self.records) - count, 1) :]
        self.end = self.records[-1].begin + len(self.records[-1].data)
        self.whole = {place: data for place, data in self.whole.items() if place < self.end}
        self.epoch += 1

    def delete_segment(self) -> None:
        """Delete the first segment, unless it is the last one."""
        begin = self.min_offset + SEGMENT_SIZE
        if self.records[-1].begin >= begin:
            self.min_offset = begin
            self.records = [record for record in self.records if record.begin >= begin]

    def content(self) -> dict[int, bytes]:
        """Return the records by log offset."""
        return {record.begin: record.data for record in self.records}

    async def extent(self) -> Extent:
        await Step()
        end = self.end if self.durable is None else self.durable
        return Extent("c", "1.0", LOG_ID, self.min_offset, end, SEGMENT_SIZE, self.end - end)

    async def record(self, log_offset: int) -> bytes | None:
        await Step()
        return self.content().get(log_offset)

    async def read(self, log_offset: int, epoch: int) -> Stretch:
        await Step()
        before = [r for r in self.records if r.begin < log_offset]
        if epoch and before and before[-1].epoch != epoch:
            raise StaleEpochError("other records")
        base = log_offset // SEGMENT_SIZE * SEGMENT_SIZE
        here = [r for r in self.records if log_offset <= r.begin < base + SEGMENT_SIZE][:2]
        if self.damaged is not None and any(r.begin == self.damaged for r in here):
            raise MessageDamagedError("damaged")
        later = any(r.begin >= base + SEGMENT_SIZE for r in self.records)
        starts = bool(here) and here[0].begin == log_offset
        ends = bool(before) and before[-1].begin + len(before[-1].data) == log_offset
        if not starts and not (ends and later):
            raise RecordNotFoundError(f"no record starts at {log_offset}")
        here = [r for r in here if r.epoch == here[0].epoch]
        data = b"".join(r.data for r in here)
        following = log_offset + len(data)
        if later and not any(following <= r.begin < base + SEGMENT_SIZE for r in self.records):
            following = base + SEGMENT_SIZE
        return Stretch(data, following, here[-1].epoch if here else epoch)


class ModelRepository:
    """Objects in memory. Each operation is done between two steps."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.uploads: list[str] = []

    async def put(self, path: str, data: bytes) -> None:
        await Step()
        self.objects[path] = data
        self.uploads.append(path)
        await Step()

    async def create(self, path: str, data: bytes) -> None:
        await Step()
        if path in self.objects:
            raise PathTakenError(path)
        self.objects[path] = data
        await Step()

    async def get(self, path: str) -> bytes:
        await Step()
        try:
            return self.objects[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    async def get_range(self, path: str, begin: int, end: int) -> bytes:
        return (await self.get(path))[begin:end]

    async def put_parts(self, path: str, parts: AsyncIterator[bytes]) -> None:
        await self.put(path, b"".join([part async for part in parts]))

    async def sizes(self, folder: str, *, after: str | None = None) -> dict[str, int]:
        await Step()
        found = {p: len(data) for p, data in self.objects.items() if p.startswith(f"{folder}/")}
        return {path: size for path, size in found.items() if after is None or path > after}

    async def delete(self, paths: list[str]) -> None:
        for path in paths:
            await Step()
            self.objects.pop(path, None)
