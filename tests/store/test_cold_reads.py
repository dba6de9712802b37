"""Reads of what is not in memory: they wait, and nothing else does."""

from __future__ import annotations

import asyncio
import mmap
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from eruca.contract.errors import UnavailableError
from eruca_broker.core.state.events import TopicPut
from eruca_broker.store.files import residency
from eruca_broker.store.files.residency import (
    TRUST_SECONDS,
    Mapped,
    NotInMemoryError,
    Stretch,
    attempt,
    pread,
)
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.pulling.queue_read import QueueRead
from eruca_broker.store.reading import cold_reads
from eruca_broker.store.reading.cold_reads import FETCHES, TRIES_MAX, bring
from eruca_chassis.connections.exchange import PostponedError
from support.clocks import ManualClock
from support.cold_files import ColdFiles, postponed
from support.patience import PATIENCE_SECONDS
from support.stores import batch, small_settings, without_log_lines
from support.waiting import until

pytestmark = pytest.mark.anyio
BODIES = [b"body %d" % number for number in range(30)]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MessageStore]:
    with without_log_lines():
        store = await MessageStore.open(tmp_path, small_settings(), ManualClock())
        await store.change(TopicPut("orders", 2, 2, "rw"))
        for body in BODIES:
            await store.append(batch("orders", 0, [body], keys="k"))
        yield store
        await store.close()


@pytest.fixture
def files(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> ColdFiles:
    """Files that are cold once the store is open."""
    return ColdFiles(monkeypatch)


def read(store: MessageStore, offset: int = 0) -> QueueRead:
    return store.queues.read("orders", 0, offset, count_max=100, bytes_max=1 << 20)


def bodies(read: QueueRead) -> list[bytes]:
    return [bytes(record.body) for record in read.records()]


async def test_sends_go_on_while_a_read_waits_for_the_disk(
    store: MessageStore, files: ColdFiles
) -> None:
    reading = asyncio.create_task(store.cold.read("a", partial(read, store)))
    await files.asked()
    for _ in range(3):
        await store.append(batch("orders", 1, [b"meanwhile"]))

    assert not reading.done()
    assert store.cold.waiting_count == 1
    files.let_read()
    assert bodies(await reading) == BODIES
    assert store.cold.waiting_count == 0
    assert store.cold.count == len(files.reads)
    assert store.cold.size == sum(s.end - s.begin for read in files.reads for s in read)
    assert store.cold.on_loop_count == 0


async def test_every_reader_of_the_log_waits_in_the_same_way(
    store: MessageStore, files: ColdFiles
) -> None:
    files.let_read()
    log, end = store.log, store.visible_offset
    last = read(store, len(BODIES) - 1)
    offset = next(last.records()).log_offset
    reads = (
        lambda: bytes(log.raw(offset)),
        lambda: log.record(offset).body,
        lambda: bytes(log.read(store.log_min_offset, 1 << 20).records),
        lambda: b"".join(log.pieces(store.log_min_offset, end)),
        lambda: b"".join(log.run(store.log_min_offset, 1 << 20)),
        lambda: b"".join(log.run(store.log_min_offset, 1 << 20, is_proved=False)),
        lambda: log.is_boundary(offset),
        lambda: store.places.stored_at_ms("orders", 0, 3),
        lambda: store.places.offset_by_time("orders", 0, 0),
        lambda: [
            record.body
            for record in log.by_key("orders", "k", count_max=99, begin_ms=0, end_ms=1 << 60)
        ],
    )
    for look in reads:
        assert await store.cold.read("a", look) == look()
    assert files.reads
    assert store.cold.on_loop_count == 0


async def test_a_step_of_an_exchange_is_postponed(store: MessageStore, files: ColdFiles) -> None:
    files.let_read()
    rounds = 0
    found: QueueRead | None = None
    while found is None:
        try:
            found = store.cold.attempt("a", partial(read, store), ahead=1)
        except PostponedError as error:
            await postponed(error)
            rounds += 1

    assert bodies(found) == BODIES
    assert 0 < rounds == len(files.reads)


async def test_a_postponed_step_that_is_left_does_not_run_again(
    store: MessageStore, files: ColdFiles
) -> None:
    with pytest.raises(PostponedError) as postponed_first:
        store.cold.attempt("a", partial(read, store))
    told: list[object] = []
    leave = postponed_first.value.start(lambda: told.append("again"), told.append)
    await files.asked()
    leave()
    files.let_read()

    assert bodies(await store.cold.read("a", partial(read, store))) == BODIES
    assert told == []


async def test_a_disk_that_cannot_be_read_is_an_error_and_not_a_crash(
    store: MessageStore, files: ColdFiles
) -> None:
    files.fault = OSError(5, "Input/output error")
    files.let_read()

    with without_log_lines():
        with pytest.raises(UnavailableError, match="Input/output"):
            await store.cold.read("a", partial(read, store))
        with pytest.raises(PostponedError) as first:
            store.cold.attempt("a", partial(read, store))
        assert isinstance(await postponed(first.value), UnavailableError)


async def test_bytes_that_leave_memory_again_and_again_are_read_on_the_loop(
    store: MessageStore, files: ColdFiles
) -> None:
    files.is_forgetful = True
    files.let_read()

    assert bodies(await store.cold.read("a", partial(read, store))) == BODIES
    assert store.cold.on_loop_count == 1
    assert len(files.reads) == TRIES_MAX


async def test_a_closing_store_keeps_nobody_waiting(store: MessageStore, files: ColdFiles) -> None:
    first = asyncio.create_task(store.cold.read("a", partial(read, store)))
    second = asyncio.create_task(store.cold.read("a", partial(read, store)))
    await files.asked()
    store.cold.close()

    assert bodies(await first) == bodies(await second) == BODIES
    assert bodies(await store.cold.read("a", partial(read, store))) == BODIES
    files.let_read()


async def test_bytes_are_read_for_later_once_at_a_time(
    store: MessageStore, files: ColdFiles
) -> None:
    cold = NotInMemoryError([Stretch("file", 0, 10)])
    store.cold.begin("a", cold)
    await files.asked()
    store.cold.begin("a", cold)
    assert store.cold.waiting_count == 1

    files.let_read()
    store.cold.begin("b", cold)
    await store.cold.read("a", partial(read, store))
    store.cold.begin("a", cold)
    assert store.cold.waiting_count == 1


def test_the_kernel_is_asked_what_is_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(64 * 4096))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapping:
        os.fsync(file.fileno())
        mapped = Mapped(str(path), mapping)
        mapping.madvise(mmap.MADV_DONTNEED)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        # What the file system has let go of is missing, and read once it is asked for.
        for look in (
            partial(mapped.need, 5, 60 * 4096),
            partial(pread, file.fileno(), 3 * 4096, 4096),
        ):
            with suppress(NotInMemoryError):
                attempt(look)
            assert bring([Stretch(str(path), 0, 64 * 4096)], 4096) == 64 * 4096
            attempt(look)
        mapped.need(0, 64 * 4096)  # nothing is asked outside of an attempt
        assert pread(file.fileno(), 10, 64 * 4096 - 4) == path.read_bytes()[-4:]
        assert len(attempt(partial(pread, file.fileno(), 10, 64 * 4096 - 4))) == 4


def test_the_kernel_is_not_asked_about_what_was_just_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1_000))
    now, asked = 100.0, list[tuple[int, int]]()

    def asks(begin: int, end: int) -> bool:
        asked.clear()
        assert attempt(partial(mapped.missing, begin, end)) == [
            Stretch(str(path), begin, end)
        ] * len(asked)
        return bool(asked)

    def in_memory_until(_: int, begin: int, end: int) -> int:
        asked.append((begin, end))
        return begin  # nothing is

    monkeypatch.setattr(residency, "monotonic", lambda: now)
    monkeypatch.setattr(residency, "in_memory_until", in_memory_until)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapping:
        mapped = Mapped(str(path), mapping)
        assert asks(0, 1)

        mapped.written(100, 200)
        assert not asks(100, 200)
        assert not asks(150, 160)
        assert asks(99, 200)
        assert asks(100, 201)

        now += 0.6 * TRUST_SECONDS
        mapped.written(200, 300)
        assert not asks(100, 300)
        now += 0.6 * TRUST_SECONDS
        assert asks(199, 300)
        assert not asks(200, 300)
        mapped.written(300, 400)
        assert not asks(200, 400)
        now += TRUST_SECONDS
        assert not asks(300, 400)
        assert asks(299, 400)
        now += 0.1
        assert asks(300, 400)

        mapped.written(400, 500)
        mapped.written(450, 480)  # the rest was taken back
        assert not asks(450, 480)
        assert asks(440, 480)
        assert asks(450, 481)
        mapped.written(600, 700)  # others lie between
        assert not asks(600, 700)
        assert asks(470, 700)


async def test_a_reader_at_the_logs_end_asks_the_kernel_nothing(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*_: int) -> int:
        raise AssertionError("the kernel is asked")

    monkeypatch.setattr(residency, "in_memory_until", ask)
    await store.append(batch("orders", 0, [b"new"]))

    found = attempt(partial(read, store, len(BODIES)))

    assert bodies(found) == [b"new"]


def test_a_file_that_is_deleted_meanwhile_is_no_fault(tmp_path: Path) -> None:
    assert bring([Stretch(str(tmp_path / "gone"), 0, 10)], 0) == 0
    with pytest.raises(OSError, match="directory"):
        bring([Stretch(str(tmp_path), 0, 10)], 0)
    assert cold_reads.THREADS > 1


async def test_a_tier_that_does_not_answer_is_waited_for_once(store: MessageStore) -> None:
    begun: list[int] = []
    timed_out, answered = asyncio.Event(), asyncio.Event()

    async def fetch(number: int) -> int:
        begun.append(number)
        if number:
            await answered.wait()
            return 1
        await timed_out.wait()
        raise UnavailableError("the tier has not answered") from TimeoutError()

    def cold(number: int) -> NotInMemoryError:
        return NotInMemoryError([Stretch("", number, number + 1)], partial(fetch, number))

    reads = [
        asyncio.create_task(store.cold.bring(f"reader {number}", cold(number)))
        for number in range(FETCHES + 20)
    ]
    await until(lambda: len(begun) == FETCHES)
    timed_out.set()

    async with asyncio.timeout(PATIENCE_SECONDS):
        refused = await asyncio.gather(reads[0], *reads[FETCHES:], return_exceptions=True)
    assert all(isinstance(error, UnavailableError) for error in refused)
    assert begun == list(range(FETCHES)), "the others have not begun"
    answered.set()
    await asyncio.gather(*reads[1:FETCHES])
    await store.cold.bring("reader 1", cold(99))
    assert store.cold.waiting_count == 0
