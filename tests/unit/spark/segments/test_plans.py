"""Loads of stores, tiers and backups, and their rows; without Spark."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from eruca.cli.backups import manifests, pieces
from eruca.cli.backups.records_walk import walk as walked_piece
from eruca.contract.errors import ErucaError
from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.records import MAGIC_V1, Record, encode_blank, encode_record
from eruca.exporting.errors import DamagedError, OptionError, SourceError
from eruca.objects.folders import FolderRepository
from eruca.objects.object_stores import ObjectRepository
from eruca_broker.core.state.events import TopicDeleted, TopicPut
from eruca_broker.core.tier.manifests import Manifest, TierSegment, encoded, format_of
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.tiering.tiering import Tiering
from pyspark_eruca_segments import objects, topics
from pyspark_eruca_segments.copies import Stretch
from pyspark_eruca_segments.options import SegmentOptions
from pyspark_eruca_segments.plan import planned
from pyspark_eruca_segments.share_reader import rows_of
from pyspark_eruca_segments.tiers import _decoded
from support.clocks import ManualClock
from support.log_model import read_log
from support.rocketmq_stores import Stored, write_log
from support.stores import abandon, batch, delete_oldest_segments, without_log_lines
from support.tiers import SETTINGS, brought_up, fill, filled_store, pulled

pytestmark = pytest.mark.anyio
SEGMENTS = 4
COLUMNS = ("topic", "queue_id", "queue_offset", "log_offset", "body", "damage", "size")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def running() -> AsyncIterator[AsyncExitStack]:
    """Return what closes the store, unless a test has closed it."""
    with without_log_lines():
        async with AsyncExitStack() as stack:
            yield stack


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock, running: AsyncExitStack) -> MessageStore:
    store = await filled_store(tmp_path / "store", clock, SEGMENTS)
    running.push_async_callback(store.close)
    return store


async def load(place: Path, **options: str) -> list[dict[str, Any]]:
    """Return the rows of a load, in a thread: Spark's processes have no event loop."""
    return await asyncio.to_thread(loaded, place, **options)


def loaded(place: Path | str, **options: str) -> list[dict[str, Any]]:
    """Return the rows of a load, as Spark's tasks read them."""
    given = {"path": str(place), "topic": "orders,rare", "broker": "broker-a", **options}
    parsed = SegmentOptions.parse({"columns": ",".join(COLUMNS), **given})
    rows: list[dict[str, Any]] = []
    for share in planned(parsed):
        for rows_ in rows_of(share, parsed.columns, is_marked=parsed.damaged == "mark"):
            rows += rows_.to_pylist()
    return rows


async def expected(store: MessageStore, end: int | None = None) -> dict[int, tuple[str, int, int]]:
    """Return the messages that pulls find, by log offset, up to one."""
    found = {}
    for topic, queues in (("orders", 3), ("rare", 1)):
        for queue_id in range(queues):
            for offset, raw in enumerate(await pulled(store, topic, queue_id)):
                [log_offset] = struct.unpack_from(">q", raw, 28)
                if end is None or log_offset < end:
                    found[log_offset] = topic, queue_id, offset
    return found


def places(rows: list[dict[str, Any]]) -> dict[int, tuple[str, int, int]]:
    found = {
        row["log_offset"]: (row["topic"], row["queue_id"], row["queue_offset"]) for row in rows
    }
    assert len(found) == len(rows)
    return found


# --- Stores ---------------------------------------------------------------------------------------


async def test_a_stopped_store_is_read_up_to_its_end(
    store: MessageStore, running: AsyncExitStack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    messages = await expected(store)
    await running.aclose()

    assert places(await load(tmp_path / "store")) == messages
    assert places(await load(tmp_path / "store" / "commitlog")) == messages
    assert not capsys.readouterr().err


async def test_of_a_running_store_only_flushed_and_closed_segments_are_read(
    store: MessageStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await store.upkeep.checkpoint()
    end = store.retention.segment_ends()[-2]
    messages = await expected(store, end)

    assert places(await load(tmp_path / "store")) == messages
    assert len(messages) > 100
    assert "runs, or was killed" in capsys.readouterr().err


async def test_a_killed_store_is_read_like_a_running_one(
    store: MessageStore, running: AsyncExitStack, tmp_path: Path, clock: ManualClock
) -> None:
    await store.upkeep.checkpoint()
    end = store.retention.segment_ends()[-2]
    messages = await expected(store, end)
    await fill(store, clock, 1)  # nothing promises that this is flushed
    running.pop_all()
    await abandon(store)

    assert places(await load(tmp_path / "store")) == messages


async def test_messages_that_retention_has_deleted_have_no_rows(
    store: MessageStore, running: AsyncExitStack, tmp_path: Path
) -> None:
    messages = await expected(store)
    await delete_oldest_segments(store, 2)
    begin = store.log_min_offset
    await running.aclose()

    kept = {offset: place for offset, place in messages.items() if offset >= begin}
    assert 0 < len(kept) < len(messages)
    assert places(await load(tmp_path / "store", topic="orders")) == {
        offset: place for offset, place in kept.items() if place[0] == "orders"
    }


async def test_a_topic_that_was_deleted_and_created_again_has_only_its_own_rows(
    store: MessageStore, running: AsyncExitStack, tmp_path: Path
) -> None:
    await store.change(TopicDeleted("orders"))
    await store.change(TopicPut("orders", 1, 1, "rw"))
    await store.append(batch("orders", 0, [b"of the later topic"]))
    await running.aclose()

    assert [row["body"] for row in await load(tmp_path / "store", topic="orders")] == [
        b"of the later topic"
    ]


async def test_a_topic_that_was_deleted_is_not_there(
    store: MessageStore, running: AsyncExitStack, tmp_path: Path
) -> None:
    await store.change(TopicDeleted("orders"))
    await running.aclose()

    with pytest.raises(OptionError, match=r"orders does not exist .* topics there: rare"):
        await load(tmp_path / "store", topic="orders")


async def test_system_topics_can_be_read(
    store: MessageStore, running: AsyncExitStack, tmp_path: Path
) -> None:
    await running.aclose()

    rows = await load(tmp_path / "store", topic="ERUCA_SYS_EVENTS")

    assert any(b'"topic_put"' in row["body"] for row in rows)
    assert [row["queue_offset"] for row in rows] == list(range(len(rows)))


async def test_times_choose_rows(
    store: MessageStore, running: AsyncExitStack, tmp_path: Path
) -> None:
    await running.aclose()
    columns = "stored_at,body"
    rows = await load(tmp_path / "store", columns=columns)
    first, last = rows[len(rows) // 3]["stored_at"], rows[len(rows) // 2]["stored_at"]
    assert first < last

    chosen = await load(
        tmp_path / "store",
        columns=columns,
        startingTimestamp=first.isoformat(),
        endingTimestamp=last.isoformat(),
    )

    assert chosen == [row for row in rows if first <= row["stored_at"] < last]
    assert chosen


async def test_offsets_choose_rows(
    store: MessageStore, running: AsyncExitStack, tmp_path: Path
) -> None:
    await running.aclose()
    start, end = json.dumps({"orders/broker-a/0": 3}), json.dumps({"orders/broker-a/0": 8})

    rows = await load(tmp_path / "store", startingOffsets=start, endingOffsets=end, topic="orders")

    assert [row["queue_offset"] for row in rows if row["queue_id"] == 0] == list(range(3, 8))
    assert min(row["queue_offset"] for row in rows if row["queue_id"] == 1) == 0


async def test_rocketmq_s_store_is_read(tmp_path: Path) -> None:
    messages = [Stored("orders", row % 2, {"k": str(row)}, b"%d" % row) for row in range(20)]
    write_log(tmp_path / "store", messages, 1_763_700_000_000)
    (tmp_path / "store" / "abort").unlink()

    rows = await load(tmp_path / "store", topic="orders")

    assert [row["body"] for row in rows] == [b"%d" % row for row in range(20)]
    assert {row["topic"] for row in rows} == {"orders"}


async def test_of_rocketmq_s_running_store_the_segment_being_written_is_not_read(
    tmp_path: Path,
) -> None:
    write_log(tmp_path / "store", [Stored("orders")], 1_763_700_000_000)

    assert await load(tmp_path / "store", topic="orders") == []


def rocketmq_s_store(place: Path, count: int = 20) -> Path:
    """Write a stopped store of RocketMQ's; return its only file."""
    messages = [Stored("orders", row % 2, {"k": str(row)}, b"<%d>" % row) for row in range(count)]
    write_log(place, messages, 1_763_700_000_000)
    (place / "abort").unlink()
    [file] = (place / "commitlog").iterdir()
    return file


async def test_the_topics_of_rocketmq_s_store_are_not_looked_for_in_all_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = rocketmq_s_store(tmp_path / "store")
    size = len(first.read_bytes())
    add_rocketmq_s_segment(first, size)
    read: list[str] = []

    def recorded(stretch: Stretch) -> topics._Found:
        read.append(Path(stretch.source.text).name)
        return found(stretch)

    found = topics._read
    monkeypatch.setattr(topics, "_read", recorded)

    rows = await load(tmp_path / "store", topic="orders")

    assert len(rows) == 21
    assert read == [f"{size:020d}"]


def add_rocketmq_s_segment(first: Path, base: int) -> None:
    """Close a store's only file, and add another one with a message."""
    *_, last = read_log(first.parents[1])
    used = last.log_offset + last.size
    room = base - used
    blank = encode_blank(room).ljust(room, b"\0")
    first.write_bytes(first.read_bytes()[:used] + blank)
    later = Record("orders", b"<later>", queue_id=1, queue_offset=10, log_offset=base)
    (first.parent / f"{base:020d}").write_bytes(encode_record(later).ljust(base, b"\0"))


# --- Damage ---------------------------------------------------------------------------------------


async def test_a_damaged_record_does_not_end_rocketmq_s_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = rocketmq_s_store(tmp_path / "store")
    change_a_byte_of(file, b"<5>")

    with pytest.raises(DamagedError, match=r"are damaged: .* Restore the file from a backup"):
        await load(tmp_path / "store", topic="orders")

    rows = await load(tmp_path / "store", topic="orders", damaged="mark")
    bodies = [row["body"] for row in rows]
    assert bodies == [None if row == 5 else b"<%d>" % row for row in range(20)]
    assert [row["damage"] is not None for row in rows] == [row == 5 for row in range(20)]
    assert "are damaged" in capsys.readouterr().err


async def test_a_snapshot_in_a_file_that_rocketmq_began_counts_and_so_does_damage_beside_it(
    tmp_path: Path,
) -> None:
    """A broker of Eruca's has continued RocketMQ's log, and its checkpoint is gone."""
    snapshot = (
        b'{"event":"snapshot","part":1,"parts":1,"topics":[{"topic":"orders","created_at":9}]}'
    )
    for place, control in ((tmp_path / "a", snapshot), (tmp_path / "b", b'{"event":"other"}')):
        messages = [
            Stored("orders", body=b"<of the predecessor>"),
            Stored(EVENTS_TOPIC, 0, {}, control),
        ]
        messages += [Stored("orders", body=b"<later>"), Stored("orders", body=b"<last>")]
        write_log(place, messages, 1_763_700_000_000)
        (place / "abort").unlink()
    change_a_byte_of(min((tmp_path / "b" / "commitlog").iterdir()), b"<later>")

    rows = await load(tmp_path / "a", topic="orders")
    assert [row["body"] for row in rows] == [b"<later>", b"<last>"]
    with pytest.raises(DamagedError, match="whether topics were deleted there is unknown"):
        await load(tmp_path / "b", topic="orders")


async def test_bytes_behind_the_last_sound_record_of_rocketmq_s_log_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = rocketmq_s_store(tmp_path / "store")
    change_a_byte_of(file, b"<19>")

    rows = await load(tmp_path / "store", topic="orders")

    assert [row["body"] for row in rows] == [b"<%d>" % row for row in range(19)]
    assert "bytes that are no record follow the last sound one" in capsys.readouterr().err


async def test_a_full_file_of_rocketmq_s_with_a_damaged_last_record_is_read_to_its_end(
    tmp_path: Path,
) -> None:
    file = rocketmq_s_store(tmp_path / "store")
    size = len(file.read_bytes())
    add_rocketmq_s_segment(file, size)
    (file.parent / f"{size:020d}").unlink()
    change_a_byte_of(file, b"<19>")

    rows = await load(tmp_path / "store", topic="orders", damaged="mark")

    assert [row["body"] for row in rows] == [*(b"<%d>" % row for row in range(19)), None]


def change_a_byte_of(path: Path, raw: bytes) -> int:
    """Change a byte of a record in a file, and return the record's log offset."""
    data = bytearray(path.read_bytes())
    at = data.index(raw)
    data[at + len(raw) // 2] ^= 1
    path.write_bytes(data)
    return at + int(path.name)


async def test_a_damaged_record_ends_the_load_or_has_a_row_that_says_so(
    store: MessageStore, running: AsyncExitStack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    messages = await expected(store)
    raw = (await pulled(store, "orders", 0))[2]
    await running.aclose()
    first = min((tmp_path / "store" / "commitlog").iterdir())
    at = change_a_byte_of(first, raw)

    fault = rf"{first}: the {len(raw)} bytes from log offset {at} on .* Restore the file"
    with pytest.raises(DamagedError, match=fault):
        await load(tmp_path / "store")

    rows = await load(tmp_path / "store", damaged="mark")
    [marked] = [row for row in rows if row["damage"] is not None]
    assert (marked["log_offset"], marked["size"], marked["topic"]) == (at, len(raw), None)
    del messages[at]
    assert places([row for row in rows if row["damage"] is None]) == messages
    assert f"from log offset {at} on are damaged" in capsys.readouterr().err


async def test_damage_where_topics_may_have_been_deleted_ends_the_load(
    store: MessageStore, running: AsyncExitStack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = (await pulled(store, "orders", 0))[-1]
    await running.aclose()
    for path in (tmp_path / "store" / "commitlog").iterdir():
        if raw in path.read_bytes():
            change_a_byte_of(path, raw)

    with pytest.raises(DamagedError, match="whether topics were deleted there is unknown"):
        await load(tmp_path / "store")
    assert any(row["damage"] for row in await load(tmp_path / "store", damaged="mark"))
    assert "a topic that was deleted there still has rows" in capsys.readouterr().err


async def test_a_truncated_file_is_told(
    store: MessageStore, running: AsyncExitStack, tmp_path: Path
) -> None:
    await running.aclose()
    first = min((tmp_path / "store" / "commitlog").iterdir())
    first.write_bytes(first.read_bytes()[:5_000])

    with pytest.raises(SourceError, match="one is missing or truncated: restore it"):
        await load(tmp_path / "store")


async def test_a_missing_last_file_is_told(
    store: MessageStore, running: AsyncExitStack, tmp_path: Path
) -> None:
    await running.aclose()
    log = tmp_path / "store" / "commitlog"
    names = sorted(path.name for path in log.iterdir())
    last = max(name for name in names if any((log / name).read_bytes()[:8]))
    for name in names[names.index(last) :]:
        (log / name).unlink()

    with pytest.raises(SourceError, match=r"found \d+ as the last one: restore the others"):
        await load(tmp_path / "store")


async def test_a_file_that_goes_between_plan_and_task_is_told(
    store: MessageStore, running: AsyncExitStack, tmp_path: Path
) -> None:
    await running.aclose()
    options = SegmentOptions.parse(
        {"path": str(tmp_path / "store"), "topic": "orders", "broker": "broker-a"}
    )
    first, *_ = await asyncio.to_thread(planned, options)
    os.unlink(first.stretch.source.text)  # noqa: PTH108 - it is a text, not a path

    with pytest.raises(SourceError, match="load the table again"):
        [*rows_of(first, options.columns, is_marked=False)]


# --- Tiers ----------------------------------------------------------------------------------------


def tiering_of(store: MessageStore, place: Path, clock: ManualClock) -> Tiering:
    repository = FolderRepository(place / "eruca" / "broker-a")
    return Tiering(store, repository, SETTINGS, clock, is_master=True)


async def test_a_tier_has_the_rows_of_its_segments(
    store: MessageStore, tmp_path: Path, clock: ManualClock
) -> None:
    tiering = tiering_of(store, tmp_path / "tier", clock)
    await tiering.open()
    await brought_up(tiering)
    messages = await expected(store, tiering.tiered_to)
    await tiering.close()

    rows = await load(tmp_path / "tier", cluster="eruca")

    assert places(rows) == messages
    assert len(messages) > 100


async def test_segments_of_other_times_are_not_read_at_all(
    store: MessageStore, tmp_path: Path, clock: ManualClock
) -> None:
    tiering = tiering_of(store, tmp_path / "tier", clock)
    await tiering.open()
    await brought_up(tiering)
    await tiering.close()
    options = {"path": str(tmp_path / "tier"), "topic": "orders", "broker": "broker-a"}
    options |= {"cluster": "eruca"}
    shares = await asyncio.to_thread(planned, SegmentOptions.parse(options))
    second_ms = shares[1].stretch.first_ms
    assert second_ms is not None

    later, earlier = [
        await asyncio.to_thread(planned, SegmentOptions.parse({**options, **more}))
        for more in (
            {"startingTimestamp": str(second_ms + 1)},
            {"endingTimestamp": str(second_ms)},
        )
    ]

    assert [one.stretch for one in later] == [one.stretch for one in shares[1:]]
    assert [one.stretch for one in earlier] == [shares[0].stretch]


async def test_a_missing_object_of_a_tier_is_told(
    store: MessageStore, tmp_path: Path, clock: ManualClock
) -> None:
    tiering = tiering_of(store, tmp_path / "tier", clock)
    await tiering.open()
    await brought_up(tiering)
    await tiering.close()
    first = min((tmp_path / "tier").rglob("*.log"))
    first.unlink()

    with pytest.raises(SourceError, match=rf"{first.name}: it has been deleted"):
        await load(tmp_path / "tier", cluster="eruca")


async def test_two_logs_in_a_tier_must_be_told_apart(
    store: MessageStore, tmp_path: Path, clock: ManualClock
) -> None:
    tiering = tiering_of(store, tmp_path / "tier", clock)
    await tiering.open()
    await brought_up(tiering)
    await tiering.close()
    folder = tmp_path / "tier" / "eruca" / "broker-a"
    (folder / store.state.log_id).rename(folder / "other")

    with pytest.raises(OptionError, match=r"option logId: .* has no log mine .* only other"):
        await load(tmp_path / "tier", cluster="eruca", logId="mine")
    with pytest.raises(SourceError, match="not the manifest of log other"):
        await load(tmp_path / "tier", cluster="eruca")


async def test_a_tier_in_an_object_store_is_read_alike(
    store: MessageStore, tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiering = tiering_of(store, tmp_path / "tier", clock)
    await tiering.open()
    await brought_up(tiering)
    await tiering.close()
    memory = MemoryStore()
    for path in (tmp_path / "tier").rglob("*.*"):
        name = path.relative_to(tmp_path / "tier").as_posix()
        await memory.put_async(name, path.read_bytes())
    expected_rows = await load(tmp_path / "tier", cluster="eruca")
    monkeypatch.setattr(
        objects,
        "open_repository",
        lambda place, folder, **_: ObjectRepository(memory, folder, place),
    )

    assert await asyncio.to_thread(loaded, "s3://bucket/tier", cluster="eruca") == expected_rows
    assert expected_rows


@pytest.mark.parametrize("side_upload", ["", "0e0f0a0b"])
def test_the_manifest_of_a_tier_is_read_as_its_broker_writes_it(side_upload: str) -> None:
    segment = TierSegment(
        base=0,
        end=4_096,
        epoch=3,
        records=7,
        first_ms=1,
        last_ms=2,
        chunk_size=4_096,
        sha256="",
        head_size=10,
        head_sha256="",
        side_size=20,
        upload="0a0b0c0d",
        side_upload=side_upload,
    )
    manifest = Manifest(
        format=format_of([segment]),
        number=5,
        cluster="eruca",
        broker_name="broker-a",
        log_id="ab",
        epoch=3,
        written_at_ms=1,
        segments=[segment],
        condemned=[],
        abandoned=[],
    )

    read = _decoded(encoded(manifest), "manifest", "ab")

    assert [one.path for one in read.segments] == [segment.path]


def test_a_manifest_of_a_later_format_is_refused() -> None:
    with pytest.raises(SourceError, match="expected format 2 or earlier, found 3"):
        _decoded(b'{"format": 3}', "manifest", "ab")


# --- Backups --------------------------------------------------------------------------------------


def backed_up(store: Path, place: Path) -> None:
    """Write a backup of a store, two pieces for each segment."""
    found: list[pieces.Piece] = []
    files = sorted((store / "commitlog").iterdir())
    for path in files:
        base, data = int(path.name), path.read_bytes()
        starts = [0]
        while int.from_bytes(data[starts[-1] + 4 : starts[-1] + 8]) == MAGIC_V1:
            starts.append(starts[-1] + int.from_bytes(data[starts[-1] : starts[-1] + 4]))
        middle, end = starts[len(starts) // 2], starts[-1]
        for begin, stop in ((0, middle), (middle, end)):
            its = data[begin:stop]
            if not its:
                continue
            walked = walked_piece(its, base + begin)
            is_last = stop == end and path != files[-1]
            piece = pieces.Piece(
                begin=base + begin,
                end=base + (len(data) if is_last else stop),
                size=len(its),
                last=base + begin + walked.last,
                epoch=0,
                stored_ms=walked.stored_ms,
                sha256=hashlib.sha256(its).hexdigest(),
                upload="0a0b0c0d",
            )
            found.append(piece)
            target = place / "broker-a" / manifests.path_of("ab", piece)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(its)
    manifest = manifests.Manifest(
        format=manifests.FORMAT,
        number=3,
        run="run",
        broker_name="broker-a",
        cluster="eruca",
        log_id="ab",
        broker_version="0.1.0",
        begun_at="2026-11-21T08:00:00Z",
        ended_at="2026-11-21T08:00:01Z",
        min_offset=found[0].begin,
        end_offset=found[-1].end,
        epoch=0,
        segment_bytes=len(files[0].read_bytes()),
        copied_bytes=1,
        copied_from=0,
        pieces=found,
        drops=[],
        condemned=[],
    )
    target = place / "broker-a" / manifests.name_of(3)
    target.parent.mkdir()
    target.write_bytes(manifests.encoded(manifest))
    target.with_name("00000002.json").write_bytes(b"")  # a deleted backup


async def test_a_backup_has_the_rows_of_its_pieces(
    store: MessageStore, running: AsyncExitStack, tmp_path: Path
) -> None:
    messages = await expected(store)
    await running.aclose()
    backed_up(tmp_path / "store", tmp_path / "backups")

    assert places(await load(tmp_path / "backups")) == messages
    assert places(await load(tmp_path / "backups", backup="3")) == messages
    with pytest.raises(OptionError, match=r"has no backup 2 .* only 3"):
        await load(tmp_path / "backups", backup="2")


# --- Options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topic": ""}, "option topic is missing"),
        ({"broker": ""}, "option broker is missing"),
        ({"columns": "colour"}, "unknown column"),
        ({"damaged": "mark", "columns": "body"}, "mark requires the column damage"),
        ({"includeOpen": "true"}, "unknown option 'includeopen'"),
        ({"cluster": "eruca"}, "has no tier of broker broker-a in cluster eruca"),
        ({}, "has neither a store nor a backup of broker broker-a"),
        ({"startingOffsets": '{"orders/broker-b/0": 1}'}, "is on no broker of the option broker"),
        ({"path": "s3:/bucket"}, "expected s3://"),
        ({"path": "s3://key:secret@bucket"}, r"one of @ \? # \(not shown\)"),
        (
            {
                "startingTimestamp": "2026-11-21T08:00:00Z",
                "endingTimestamp": "2026-11-20T08:00:00Z",
            },
            "expected a time after",
        ),
    ],
)
async def test_wrong_options_are_told(tmp_path: Path, options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        await load(tmp_path, **options)


async def test_an_error_of_the_object_store_is_one_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object, **__: object) -> dict[str, int]:
        raise ErucaError("the store is away", fix="check its URL")

    monkeypatch.setattr(FolderRepository, "sizes", refused)

    with pytest.raises(SourceError, match="the store is away; check its URL"):
        await load(tmp_path)
