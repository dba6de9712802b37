"""The row feed hands rows over as they come, holds what may be ahead, and ends when told."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import aclosing
from pathlib import Path

import pytest

from eruca.cli.sending.row_feed import EndlessLineError, RowFeed
from eruca.cli.sending.rows import Row, RowFields, RowFormat

pytestmark = pytest.mark.anyio


def feed_of(descriptor: int, row_format: RowFormat = RowFormat.LINES) -> RowFeed:
    return RowFeed(descriptor, row_format, RowFields())


def file_of(path: Path, data: bytes) -> int:
    path.write_bytes(data)
    return os.open(path, os.O_RDONLY)


async def bodies(feed: RowFeed) -> list[bytes]:
    async with aclosing(feed.batches()) as batches:
        return [row.body async for batch in batches for row in batch if isinstance(row, Row)]


async def test_a_file_is_read_to_its_end_in_order(tmp_path: Path) -> None:
    lines = [b"line %d" % number for number in range(100_000)]
    feed = feed_of(file_of(tmp_path / "rows", b"\n".join(lines)))

    assert await asyncio.wait_for(bodies(feed), 60) == lines
    assert feed.position == feed.size == len(b"\n".join(lines))


async def test_a_quoted_field_keeps_its_line_ends(tmp_path: Path) -> None:
    feed = feed_of(file_of(tmp_path / "rows.csv", b'a\n"x\ny"\n'), RowFormat.CSV)

    assert await asyncio.wait_for(bodies(feed), 60) == [b'{"a":"x\\ny"}']


async def test_a_line_from_a_pipe_comes_before_the_next_one_is_written() -> None:
    reading, writing = os.pipe()
    feed = feed_of(reading)
    async with aclosing(feed.batches()) as batches:
        for number in range(3):
            os.write(writing, b"line %d\n" % number)
            [row] = await asyncio.wait_for(anext(batches), 60)
            assert isinstance(row, Row)
            assert row.body == b"line %d" % number
        os.write(writing, b"without end")
        os.close(writing)
        [row] = await asyncio.wait_for(anext(batches), 60)

    assert feed.size is None
    assert isinstance(row, Row)
    assert row.body == b"without end"


async def test_a_reader_nobody_listens_to_ends(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    feed = feed_of(file_of(tmp_path / "rows", b"line\n" * 1_000_000))
    async with aclosing(feed.batches()) as batches:
        await asyncio.wait_for(anext(batches), 60)
    [reader] = set(threading.enumerate()) - before

    await asyncio.to_thread(reader.join, 60)

    assert not reader.is_alive()
    assert feed.position < 5_000_000


async def test_input_without_line_ends_is_given_up_before_it_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eruca.cli.sending.row_feed._LINE_SIZE_MAX", 1_000_000)
    feed = feed_of(os.open("/dev/zero", os.O_RDONLY))

    with pytest.raises(EndlessLineError, match="no line end within 1000000 bytes"):
        await asyncio.wait_for(bodies(feed), 60)


async def test_a_directory_is_an_error_that_is_raised_here(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory"):
        await bodies(feed_of(os.open(tmp_path, os.O_RDONLY)))
