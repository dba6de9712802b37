"""A store that is opened with a cut equals one that was given only the records before it (rule 9).

The log holds records of every kind. It is cut after orderly stops and after kills, and the process
is killed at each step of the cut.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import anyio
import numpy as np
import pytest

from eruca.contract.names import EVENTS_TOPIC
from eruca_broker.core.index.layout import (
    ENTRY_DTYPE,
    HEADER,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexHeader,
)
from eruca_broker.core.state.events import TopicDeleted, decode_event
from eruca_broker.core.state.record_groups import GROUP_HEADS
from eruca_broker.opening import open_store
from eruca_broker.settings import BrokerSettings
from eruca_broker.store.config import handover
from eruca_broker.store.config.checked_json import read_checked
from eruca_broker.store.config.projection_digests import Digests
from eruca_broker.store.files.checkpoint import read_checkpoint
from eruca_broker.store.log import segment as segment_module
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.recovery import cut as cut_module
from eruca_broker.store.recovery.cut import Cut, InvalidCutError
from eruca_chassis.start import StartError
from support.lived_stores import (
    CLOCK,
    SEGMENT_SIZE,
    assert_same,
    broker_directory,
    files_of,
    settings,
)
from support.log_model import read_log
from support.stores import STORE_HOST, abandon, without_log_lines

pytestmark = pytest.mark.anyio


class Life(NamedTuple):
    """The end of the process whose log is cut."""

    name: str
    is_closed: bool  # in order; else it was killed
    checkpoint_at: float | None  # part of the log that it had when it wrote its checkpoint
    confirmed: float = 1.0  # part of the log that was confirmed, and so dispatched


LIVES = [
    Life("closed", is_closed=True, checkpoint_at=None),
    Life("killed early", is_closed=False, checkpoint_at=0.3),
    Life("killed late", is_closed=False, checkpoint_at=1.0),
    Life("killed at once", is_closed=False, checkpoint_at=None),
    Life("closed with an unconfirmed end", is_closed=True, checkpoint_at=None, confirmed=0.8),
]


class Record(NamedTuple):
    begin: int
    end: int
    is_message: bool
    is_deletion: bool


class Source:
    """The log of a broker that has lived, and stores that hold it, or a part of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.stored = broker_directory(directory / "stored", 3, rounds=15)
        self.records: list[Record] = []
        self.groups: list[tuple[int, int]] = []
        for record in read_log(self.stored):
            end = record.log_offset + record.size
            is_event = record.topic == EVENTS_TOPIC
            event = decode_event(record.body) if is_event else None
            if isinstance(event, GROUP_HEADS) and event.group_size:
                self.groups.append((record.log_offset, end + event.group_size))
            is_deletion = isinstance(event, TopicDeleted)
            self.records.append(Record(record.log_offset, end, not is_event, is_deletion))
        self.end = self.records[-1].end

    def is_boundary(self, offset: int) -> bool:
        return not any(begin < offset < end for begin, end in self.groups)

    @property
    def last_deletion(self) -> int:
        """Return the log offset of the last event that deletes a topic."""
        return max(record.begin for record in self.records if record.is_deletion)

    @property
    def boundaries(self) -> list[int]:
        """Return where the log can be cut: at the ends of records."""
        return [record.end for record in self.records if self.is_boundary(record.end)]

    def run(self, begin: int, end: int) -> bytes:
        """Return the bytes of the log."""
        pieces, base = [], begin - begin % SEGMENT_SIZE
        while base < end:
            data = (self.stored / "commitlog" / f"{base:020}").read_bytes()
            pieces.append(data[max(begin - base, 0) : end - base])
            base += SEGMENT_SIZE
        return b"".join(pieces)

    @cache  # noqa: B019 - it lives as long as the module's tests
    def of(self, life: Life, end: int) -> Path:
        """Return the directory of a replica's store that holds the log up to *end*."""
        directory = self.directory / f"{life.name}-{end}"

        async def feed(store: MessageStore, part: float) -> None:
            until = max(it for it in (0, *self.boundaries) if it <= part * end)
            if (begin := store.log_max_offset) < until:
                await store.role.copy(memoryview(self.run(begin, until)), begin)

        async def fill() -> None:
            store = await opened(directory)
            if life.checkpoint_at is not None:
                await feed(store, life.checkpoint_at)
                store.role.confirm(end)
                await store.upkeep.checkpoint()
            await feed(store, life.confirmed)
            store.role.confirm(end)
            await feed(store, 1.0)
            await (store.close() if life.is_closed else abandon(store))

        with without_log_lines():
            anyio.run(fill)
        return directory

    def fresh(self, life: Life, end: int, to: Path) -> Path:
        """Return a copy of :meth:`of`."""
        shutil.rmtree(to, ignore_errors=True)
        return Path(shutil.copytree(self.of(life, end), to))


async def opened(directory: Path, cut_to: int | None = None) -> MessageStore:
    return await MessageStore.open(
        directory, replace(settings(is_replica=True), cut_to=cut_to), CLOCK
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    with without_log_lines():
        return Source(tmp_path_factory.mktemp("source"))


@pytest.fixture(autouse=True)
def _without_log_lines() -> Iterator[None]:
    with without_log_lines():
        yield


def expected_cut(source: Source, cut_to: int) -> Cut | None:
    if cut_to == source.end:
        return None  # nothing goes
    gone = [record for record in source.records if record.begin >= cut_to]
    count = sum(record.is_message for record in gone)
    return Cut(cut_to, source.end - cut_to, count, is_counted=True)


def everything(directory: Path) -> dict[str, bytes]:
    """Return the files of a store, but for the room behind their content."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes().rstrip(b"\0")
        for path in directory.rglob("*")
        if path.is_file() and path.read_bytes().strip(b"\0")
    }


def comparable(directory: Path) -> dict[str, object]:
    """Return the files of a closed store as far as they must be equal.

    The key index may have an entry twice after a kill, and then other files; what is behind its
    last entry is of no use. Nor are marks after an orderly stop, which writes digests.
    """
    files: dict[str, object] = {**everything(directory)}
    del files["config/projectionMarks.json"]
    digests = read_checked(directory / "config" / "projectionDigests.json", Digests)
    files["config/projectionDigests.json"] = sorted(digests.queues)
    entries: set[tuple[int, int]] = set()
    for path in (directory / "index").iterdir():
        del files[f"index/{path.name}"]
        content = path.read_bytes()
        count = IndexHeader(*HEADER.unpack_from(content)).index_count
        begin = HEADER_SIZE + settings(is_replica=True).index_slots * SLOT_SIZE
        rows = np.frombuffer(content, ENTRY_DTYPE, count, begin)[1:]
        entries.update(zip(rows["key_hash"].tolist(), rows["log_offset"].tolist(), strict=True))
    files["index"] = entries
    return files


async def assert_equals_prefix(store: MessageStore, source: Source, end: int, tmp: Path) -> None:
    """Compare an open store, and its files once closed, with one that got only the log's prefix."""
    assert store.log_max_offset == store.visible_offset == end
    expected = await opened(source.fresh(LIVES[0], end, tmp / "expected"))
    assert_same(store, expected)
    assert store.role.epochs() == expected.role.epochs()
    assert store.last_store_timestamp == expected.last_store_timestamp
    await store.close()
    await expected.close()
    assert comparable(store.directory) == comparable(expected.directory)


def interesting(source: Source, random: Random) -> list[int]:
    """Return places for a cut: at random, around the edges of segments, around a deletion."""
    boundaries = source.boundaries
    edges = range(SEGMENT_SIZE, source.end, SEGMENT_SIZE)
    near = [max(it for it in boundaries if it <= edge) for edge in edges]
    after = [min(it for it in boundaries if it > edge) for edge in edges]
    later = [it for it in boundaries if it > source.last_deletion]
    some = random.sample(boundaries, 4) + random.sample(later, 3)
    return sorted({boundaries[0], source.last_deletion, *random.sample([*near, *after], 3), *some})


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.name)
async def test_a_cut_store_equals_one_that_was_given_only_the_prefix(
    source: Source, tmp_path: Path, life: Life
) -> None:
    await anyio.to_thread.run_sync(source.of, life, source.end)
    for cut_to in interesting(source, Random(life.name)):
        await anyio.to_thread.run_sync(source.of, LIVES[0], cut_to)
        store = await opened(source.fresh(life, source.end, tmp_path / "cut"), cut_to)

        assert store.cut == expected_cut(source, cut_to)
        expected = everything(source.of(LIVES[0], cut_to))
        for name in ("topics", "subscriptionGroup", "consumerOffset"):  # also before it is closed
            path = f"config/{name}.json"
            assert everything(store.directory)[path] == expected[path]
        await assert_equals_prefix(store, source, cut_to, tmp_path)


async def test_a_cut_store_goes_on_like_its_master(source: Source, tmp_path: Path) -> None:
    await anyio.to_thread.run_sync(source.of, LIVES[0], source.end)
    for cut_to in Random(5).sample(source.boundaries, 4):
        store = await opened(source.fresh(LIVES[0], source.end, tmp_path / "cut"), cut_to)

        await store.role.copy(memoryview(source.run(cut_to, source.end)), cut_to)
        store.role.confirm(source.end)

        await assert_equals_prefix(store, source, source.end, tmp_path)


async def test_a_cut_at_the_end_changes_nothing(source: Source, tmp_path: Path) -> None:
    for life in LIVES:
        await anyio.to_thread.run_sync(source.of, life, source.end)
        store = await opened(source.fresh(life, source.end, tmp_path / "cut"), source.end)

        assert store.cut is None
        await assert_equals_prefix(store, source, source.end, tmp_path)


async def test_everything_may_be_cut(source: Source, tmp_path: Path) -> None:
    await anyio.to_thread.run_sync(source.of, LIVES[0], source.end)
    store = await opened(source.fresh(LIVES[0], source.end, tmp_path / "cut"), 0)

    assert store.cut == expected_cut(source, 0)
    assert (store.log_min_offset, store.log_max_offset) == (0, 0)
    assert files_of(store, "commitlog") == files_of(store, "consumequeue") == {}
    assert store.role.epochs().epochs == ()
    await store.role.copy(memoryview(source.run(0, source.end)), 0)
    store.role.confirm(source.end)
    await assert_equals_prefix(store, source, source.end, tmp_path)


async def test_a_cut_behind_a_blank_record_keeps_it(source: Source, tmp_path: Path) -> None:
    """No run ends there, but a power failure may have left a log that does."""
    await anyio.to_thread.run_sync(source.of, LIVES[0], source.end)
    cut_to = 2 * SEGMENT_SIZE
    store = await opened(source.fresh(LIVES[0], source.end, tmp_path / "cut"), cut_to)

    assert store.log_max_offset == cut_to
    await store.role.copy(memoryview(source.run(cut_to, source.end)), cut_to)
    store.role.confirm(source.end)
    await assert_equals_prefix(store, source, source.end, tmp_path)


@pytest.mark.parametrize("life", LIVES[:2], ids=lambda life: life.name)
async def test_a_cut_that_is_at_no_record_s_end_is_refused_and_changes_nothing(
    source: Source, tmp_path: Path, life: Life
) -> None:
    await anyio.to_thread.run_sync(source.of, life, source.end)
    directory = source.fresh(life, source.end, tmp_path / "cut")
    before = everything(directory)
    random = Random(6)
    inside = [record.begin + random.randrange(1, record.end - record.begin) for record in
              random.sample(source.records, 12)]  # fmt: skip
    amid = [record.end for record in source.records if not source.is_boundary(record.end)]
    outside = [-1, source.end + 1, source.end + 100, 2**40]
    for cut_to in [*inside, *random.sample(amid, 6), *outside]:
        with pytest.raises(InvalidCutError, match=f"the log cannot end at {cut_to}: "):
            await opened(directory, cut_to)

    (directory / "abort").unlink(missing_ok=life.is_closed)
    after = everything(directory)
    assert after.keys() >= before.keys() - {"abort"}
    assert {name: after[name] for name in before if name != "abort"} == {
        name: content for name, content in before.items() if name != "abort"
    }


async def test_a_broker_opens_its_store_with_a_cut(source: Source, tmp_path: Path) -> None:
    await anyio.to_thread.run_sync(source.of, LIVES[0], source.end)
    broker = BrokerSettings(
        store_dir=source.fresh(LIVES[0], source.end, tmp_path / "cut"),
        controller_urls="http://127.0.0.1:9878",
        segment_bytes=SEGMENT_SIZE,
    )
    cut_to = source.boundaries[-9]

    with pytest.raises(StartError, match=f"the log cannot end at {cut_to + 1}: "):
        await open_store(broker, STORE_HOST, CLOCK, cut_to=cut_to + 1)
    store = await open_store(broker, STORE_HOST, CLOCK, cut_to=cut_to)

    assert store.log_max_offset == cut_to
    await store.close()


class Killed(BaseException):
    """The process is killed."""


class Kill:
    """Kills the process after a number of effects of a cut."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
        self.left = after
        for name in ("take_digests", "delete_marks", "write_checkpoint", "delete_progress"):
            self._replace(monkeypatch, cut_module, name)
        self._replace(monkeypatch, handover, "forget")
        self._replace(monkeypatch, segment_module.Segment, "delete")
        self._replace(monkeypatch, segment_module.Segment, "cut_tail")
        monkeypatch.setattr(segment_module, "_CHUNK_SIZE", 16_384)
        monkeypatch.setattr(segment_module, "_ZEROS", bytes(16_384))
        self._replace(monkeypatch, segment_module.Segment, "write")

    def _replace(self, monkeypatch: pytest.MonkeyPatch, where: object, name: str) -> None:
        real: Callable[..., Any] = getattr(where, name)

        def effect(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            if self.left == 0:
                raise Killed
            self.left -= 1
            return real(*arguments, **named)

        monkeypatch.setattr(where, name, effect)


@pytest.mark.parametrize(
    ("life", "is_deep"),
    [(LIVES[0], True), (LIVES[2], False)],
    ids=["closed, with a deletion", "killed late"],
)
@pytest.mark.parametrize("is_asked_again", [True, False])
async def test_a_kill_at_any_step_of_a_cut_leaves_a_store_that_can_be_cut_again(
    source: Source, tmp_path: Path, life: Life, *, is_deep: bool, is_asked_again: bool
) -> None:
    """Exhaustive over the steps. A start without the cut makes a sound store of what is left."""
    await anyio.to_thread.run_sync(source.of, life, source.end)
    lowest = source.last_deletion - SEGMENT_SIZE if is_deep else source.last_deletion
    cut_to = min(it for it in source.boundaries if it > lowest)
    assert source.end > cut_to + SEGMENT_SIZE, "no segment would be deleted"
    await anyio.to_thread.run_sync(source.of, LIVES[0], cut_to)
    steps = 0
    while True:
        directory = source.fresh(life, source.end, tmp_path / "cut")
        with pytest.MonkeyPatch.context() as patched, suppress(Killed):
            Kill(patched, steps)
            store = await opened(directory, cut_to)
            await abandon(store)
            break
        if not is_asked_again:
            store = await opened(directory)
            end = store.log_max_offset
            assert cut_to <= end <= source.end
            if end % SEGMENT_SIZE:
                await anyio.to_thread.run_sync(source.of, LIVES[0], end)
                await assert_equals_prefix(store, source, end, tmp_path)
            else:  # behind a blank record, where no run ends
                await store.close()
        store = await opened(directory, cut_to)
        await assert_equals_prefix(store, source, cut_to, tmp_path)
        steps += 1
    assert steps > 8


async def test_a_cut_lowers_the_checkpoint_before_it_touches_the_log(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await anyio.to_thread.run_sync(source.of, LIVES[0], source.end)
    cut_to = source.boundaries[len(source.boundaries) // 2]
    directory = source.fresh(LIVES[0], source.end, tmp_path / "cut")

    def kill(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(segment_module.Segment, "delete", kill)
    with pytest.raises(Killed):
        await opened(directory, cut_to)

    promises = read_checkpoint(directory)
    assert promises is not None
    assert promises.projected_offset <= promises.flushed_offset <= cut_to
