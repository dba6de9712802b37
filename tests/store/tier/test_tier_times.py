"""Offsets by time in the tier of a log whose clock was set back: none that is due is passed."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from eruca.contract.records import Host, Record, encode_blank, encode_record
from eruca_broker.core.tier.manifests import Manifest, TierSegment
from eruca_broker.core.tier.queue_tables import Key, Run, decoded
from eruca_broker.store.files.residency import NotInMemoryError, attempt
from eruca_broker.store.tier.cache import TierCache
from eruca_broker.store.tier.reader import TierReader
from eruca_broker.store.tier.sides import Side, side_of

HOST = Host.parse("10.1.2.3", 10_911)
SIZE = 2_000  # bytes of a segment
CHUNK = 64  # bytes: eight times
_T = TypeVar("_T")

MESSAGES = st.tuples(st.integers(0, 1), st.integers(0, 9))
"""A queue, and a store time."""


class Tier:
    """Segments as RocketMQ may have written them, and their objects."""

    def __init__(self, directory: Path, segments: list[list[tuple[int, int]]]) -> None:
        self.objects: dict[str, bytes] = {}
        self.times: dict[int, list[int]] = {0: [], 1: []}  # by queue
        named: list[TierSegment] = []
        before: dict[Key, Run] = {}
        for number, messages in enumerate(segments):
            path = directory / f"{number}"
            path.write_bytes(self._segment(number * SIZE, messages))
            made: list[Side] = []
            for _ in side_of(
                path,
                number * SIZE,
                directory / "side" / "body",
                before=before,
                is_current=lambda _queue, _run: True,
                chunk_size=CHUNK,
                done=made.append,
            ):
                pass
            [side] = made
            before = decoded(side.head).last_runs()
            segment = TierSegment(
                base=number * SIZE,
                end=(number + 1) * SIZE,
                epoch=0,
                records=side.records,
                first_ms=side.first_ms,
                last_ms=side.last_ms,
                chunk_size=CHUNK,
                sha256=side.sha256,
                head_size=len(side.head),
                head_sha256=hashlib.sha256(side.head).hexdigest(),
                side_size=len(side.head) + side.body_size,
                upload=f"{number}",
            )
            self.objects[segment.path] = path.read_bytes()
            self.objects[segment.side_path] = side.head + side.body_path.read_bytes()
            named.append(segment)
        self.manifest = Manifest(
            format=1,
            number=1,
            cluster="eruca",
            broker_name="broker-a",
            log_id="log",
            epoch=0,
            written_at_ms=0,
            segments=named,
            condemned=[],
            abandoned=[],
        )
        self.first = decoded(
            self.objects[named[0].side_path][: named[0].head_size],
        )

    def _segment(self, base: int, messages: list[tuple[int, int]]) -> bytes:
        written = b""
        for queue, at in messages:
            record = Record(
                topic="orders",
                body=b"",
                queue_id=queue,
                queue_offset=len(self.times[queue]),
                log_offset=base + len(written),
                store_timestamp=at,
                born_host=HOST,
                store_host=HOST,
            )
            self.times[queue].append(at)
            written += encode_record(record)
        return (written + encode_blank(SIZE - len(written))).ljust(SIZE, b"\0")

    async def read(self, path: str, begin: int, end: int) -> bytes:
        return self.objects[path][begin:end]


async def ask(read: Callable[[], _T]) -> _T:
    while True:
        try:
            return attempt(read)
        except NotInMemoryError as cold:
            if cold.fetch is None:
                raise
            await cold.fetch()


@given(
    segments=st.lists(st.lists(MESSAGES, min_size=1, max_size=12), min_size=1, max_size=5),
    cache_chunks=st.integers(4, 40),
)
@settings(max_examples=60, deadline=None)
def test_the_first_message_at_a_time_or_later_is_found(
    segments: list[list[tuple[int, int]]], cache_chunks: int
) -> None:
    async def main() -> None:
        with tempfile.TemporaryDirectory() as directory:
            tier = Tier(Path(directory), segments)
            heads = sum(one.head_size for one in tier.manifest.segments)
            cache = TierCache(Path(directory) / "cache", tier.read, heads + cache_chunks * CHUNK)
            await cache.open()
            reader = TierReader(cache, lambda *_: None, lambda: len(segments) * SIZE, lambda: None)
            reader.show(tier.manifest, tier.first, 0)
            for queue, times in tier.times.items():
                for ms in range(11):
                    found = await ask(
                        lambda queue=queue, ms=ms: reader.offset_by_time(  # type: ignore[misc]
                            ("orders", queue), 0, ms
                        )
                    )
                    late = [offset for offset, at in enumerate(times) if at >= ms]
                    assert found == late[0] if late else found in (None, len(times))
            await cache.close()

    asyncio.run(main())
