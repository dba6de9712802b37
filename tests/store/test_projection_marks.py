"""After a kill projections are believed as far as a checkpoint noted them, and proved when used.

What turns out to be something else is rebuilt from the log while the store is open; until then
no answer says that it is complete.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
import structlog

from eruca.contract.errors import UnavailableError
from eruca_broker.core.state.events import TopicDeleted, TopicPut
from eruca_broker.store.config.projection_marks import NAME, read_marks
from eruca_broker.store.files.open_files import OpenFiles
from eruca_broker.store.index import key_index
from eruca_broker.store.message_store import MessageStore
from support.clocks import ManualClock
from support.stores import abandon, all_answers, batch, delete_oldest_segments, small_settings

pytestmark = pytest.mark.anyio
SETTINGS = small_settings(file_entries=16)
CLOCK = ManualClock()
Answers = dict[str, object]


async def opened(directory: Path) -> MessageStore:
    return await MessageStore.open(directory, SETTINGS, CLOCK)


async def killed(directory: Path, *, queue_count: int = 3, rounds: int = 20) -> Answers:
    """Leave a store that was killed a little after a checkpoint; return its answers."""
    store = await opened(directory)
    await store.change(TopicPut("orders", queue_count, queue_count, "rw"))
    for number in range(rounds * queue_count):
        CLOCK.advance(1)
        bodies = [b"%d-%d" % (number, part) for part in range(2)]
        await store.append(batch("orders", number % queue_count, bodies, keys=f"all k{number % 3}"))
    await store.upkeep.checkpoint()
    await store.append(batch("orders", 0, [b"after the checkpoint"], keys="all"))
    answers = all_answers(store)
    await abandon(store)
    return answers


async def repaired(store: MessageStore) -> Answers:
    """Return the store's answers once it has repaired what it has found."""
    for _ in range(20):
        try:
            return all_answers(store)
        except UnavailableError:
            await store.upkeep.mend_projections()
    raise AssertionError("it is not repaired")


def change(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


async def test_a_start_after_a_kill_opens_the_queues_that_were_written_since_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await killed(tmp_path, queue_count=100, rounds=2)
    touched: set[str] = set()
    descriptor = OpenFiles.descriptor

    def note(self: OpenFiles, path: str) -> int:
        touched.add(Path(path).parent.name if "consumequeue/orders/" in path else "")
        return descriptor(self, path)

    monkeypatch.setattr(OpenFiles, "descriptor", note)
    store = await opened(tmp_path)

    assert touched - {""} == {"0"}
    assert [store._consume_queues.end_of("orders", q) for q in (0, 1, 99)] == [5, 4, 4]
    assert touched - {""} == {"0"}
    await store.close()


@pytest.mark.parametrize("number", [0, 1], ids=["closed file", "open file"])
async def test_a_damaged_queue_file_is_found_when_it_is_read_and_rebuilt_meanwhile(
    tmp_path: Path, number: int
) -> None:
    answers = await killed(tmp_path)
    change(sorted((tmp_path / "consumequeue" / "orders" / "1").iterdir())[number], 100)
    store = await opened(tmp_path)

    with pytest.raises(UnavailableError, match="entries have changed"):
        store.queues.read("orders", 1, 16 * number, count_max=1, bytes_max=1)
    assert "changed" in str(store.projections()[0].failure)
    assert store.queues.range("orders", 2) == (0, 40)  # another one is not concerned
    await store.upkeep.mend_projections()

    assert all_answers(store) == answers
    assert store.projections()[0].failure is None
    receipt = await store.append(batch("orders", 1, [b"goes on"]))
    assert receipt.queue_offset == 40
    await store.close()


async def test_nothing_is_appended_to_a_queue_whose_end_is_not_known(tmp_path: Path) -> None:
    await killed(tmp_path)
    for path in (tmp_path / "consumequeue" / "orders" / "1").iterdir():
        path.unlink()
    store = await opened(tmp_path)

    with pytest.raises(UnavailableError):
        await store.append(batch("orders", 1, [b"where to?"]))
    await store.upkeep.mend_projections()

    assert (await store.append(batch("orders", 1, [b"there"]))).queue_offset == 40
    await store.close()


async def test_queues_that_nobody_reads_are_proved_as_well(tmp_path: Path) -> None:
    answers = await killed(tmp_path)
    change(sorted((tmp_path / "consumequeue" / "orders" / "2").iterdir())[-1], 3)
    store = await opened(tmp_path)

    await store.upkeep.mend_projections()

    assert all_answers(store) == answers
    await store.close()


async def test_a_queue_of_a_topic_that_was_created_again_is_rebuilt_without_its_predecessor(
    tmp_path: Path,
) -> None:
    store = await opened(tmp_path)
    await store.change(TopicPut("orders", 1, 1, "rw"))
    await store.append(batch("orders", 0, [b"old"] * 3, keys="all"))
    await store.change(TopicDeleted("orders"))
    await store.change(TopicPut("orders", 1, 1, "rw"))
    await store.append(batch("orders", 0, [b"new"] * 2, keys="all"))
    await store.upkeep.checkpoint()
    answers = all_answers(store)
    await abandon(store)
    [path] = (tmp_path / "consumequeue" / "orders" / "0").iterdir()
    change(path, 5)
    store = await opened(tmp_path)

    assert await repaired(store) == answers
    assert store.queues.range("orders", 0) == (0, 2)
    await store.close()


@pytest.mark.parametrize("proved_size", [0, 1 << 30], ids=["in the background", "at the start"])
@pytest.mark.parametrize("part", ["header", "slots", "entries"])
async def test_damage_to_any_file_of_the_key_index_loses_no_hit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, proved_size: int
) -> None:
    answers = await killed(tmp_path / "store")
    monkeypatch.setattr(key_index, "PROVED_SIZE_MAX", proved_size)
    position = {"header": 20, "slots": 45, "entries": 40 + 16 * 4 + 50}[part]
    files = sorted((tmp_path / "store" / "index").iterdir())
    assert len(files) > 2
    for file in files:
        copy = Path(shutil.copytree(tmp_path / "store", tmp_path / "copy"))
        change(copy / "index" / file.name, position)

        store = await opened(copy)
        assert await repaired(store) == answers, file
        await store.close()

        shutil.rmtree(copy)


async def test_a_look_up_waits_until_the_index_is_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = await killed(tmp_path)
    monkeypatch.setattr(key_index, "PROVED_SIZE_MAX", 0)
    store = await opened(tmp_path)

    with pytest.raises(UnavailableError, match="being verified"):
        store.log.by_key("orders", "all", count_max=10, begin_ms=0, end_ms=2**62)
    await store.upkeep.mend_projections()

    assert all_answers(store) == answers
    await store.close()


@pytest.mark.parametrize("is_being_proved", [False, True])
async def test_retention_may_delete_a_file_of_the_key_index_before_it_is_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_being_proved: bool
) -> None:
    await killed(tmp_path, rounds=60)
    monkeypatch.setattr(key_index, "PROVED_SIZE_MAX", 0)
    store = await opened(tmp_path)
    count = len(list((tmp_path / "index").iterdir()))
    prove = store._index.prove_next() if is_being_proved else None

    assert await delete_oldest_segments(store, 1)
    left = len(list((tmp_path / "index").iterdir()))
    if prove is not None:
        assert not store._index.proved(prove())
    await store.upkeep.mend_projections()

    assert count > left == len(list((tmp_path / "index").iterdir())) > 1
    found = store.log.by_key("orders", "all", count_max=1_000, begin_ms=0, end_ms=2**62)
    in_queues = [store.queues.range("orders", queue_id) for queue_id in range(3)]
    assert len(found) == sum(end - begin for begin, end in in_queues)
    await store.close()


@pytest.mark.parametrize("is_mended", [False, True])
async def test_retention_leaves_a_segment_of_which_a_damaged_queue_is_rebuilt(
    tmp_path: Path, is_mended: bool
) -> None:
    answers = await killed(tmp_path, rounds=60)
    change(sorted((tmp_path / "consumequeue" / "orders" / "1").iterdir())[0], 100)
    store = await opened(tmp_path)
    steps = store.retention.deletion(1, await store.retention.needed_from())
    while not store._consume_queues.damaged:
        assert next(steps) is None  # it finds the damage itself, when it opens the queue

    if is_mended:
        await store.upkeep.mend_projections()
    else:
        store._dispatcher.rebuild_damaged(store._begin_of)
    assert set(steps) <= {None}
    await store.upkeep.checkpoint()  # completes a rebuild that has begun

    assert all_answers(store)["orders/1"] == answers["orders/1"]
    assert len(await delete_oldest_segments(store, 1)) == 1
    assert store.log_min_offset > 0
    for queue_id in range(3):
        low, high = store.queues.range("orders", queue_id)
        read = store.queues.read("orders", queue_id, low, count_max=1_000, bytes_max=1 << 30)
        assert read.count == high - low > 0
    await store.close()


async def test_a_kill_while_messages_are_sent_is_no_damage(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.change(TopicPut("orders", 1, 1, "rw"))
    is_over = False

    async def send() -> None:
        while not is_over:
            await store.append(batch("orders", 0, [b"more"], keys="all"))

    sender = asyncio.create_task(send())
    await store.upkeep.checkpoint()
    await store.upkeep.checkpoint()
    is_over = True
    await sender
    marks, answers = read_marks(tmp_path), all_answers(store)
    await abandon(store)

    assert marks is not None
    with structlog.testing.capture_logs() as logged:
        store = await opened(tmp_path)
        assert await repaired(store) == answers

    assert [line for line in logged if line["log_level"] == "warning"] == []
    await store.close()


@pytest.mark.parametrize("damage", ["missing", "changed", "cut", "empty"])
async def test_damaged_marks_are_as_good_as_none(tmp_path: Path, damage: str) -> None:
    answers = await killed(tmp_path)
    path = tmp_path / "config" / NAME
    assert read_marks(tmp_path) is not None
    match damage:
        case "missing":
            path.unlink()
        case "changed":
            change(path, 200)
        case _:
            path.write_bytes(b"" if damage == "empty" else path.read_bytes()[:-40])
    store = await opened(tmp_path)

    assert all_answers(store) == answers
    await store.upkeep.checkpoint()
    assert read_marks(tmp_path) is not None
    await store.close()


async def test_marks_are_not_believed_of_a_store_that_rocketmq_has_had(tmp_path: Path) -> None:
    answers = await killed(tmp_path)
    (tmp_path / "checkpoint").write_bytes(bytes(4_096))
    shutil.rmtree(tmp_path / "consumequeue" / "orders" / "0")
    store = await opened(tmp_path)

    assert all_answers(store) == answers
    await store.close()


@pytest.mark.parametrize("new_count", [0, 1, 3, 7])
@pytest.mark.parametrize("when", ["before the checkpoint", "after it", "after the kill"])
async def test_a_kill_leaves_a_topic_made_again_without_its_predecessors_messages(
    tmp_path: Path, new_count: int, when: str
) -> None:
    store = await opened(tmp_path)
    await store.change(TopicPut("orders", 1, 1, "rw"))
    await store.append(batch("orders", 0, [b"old"] * 3, keys="all"))
    await store.change(TopicDeleted("orders"))
    again = [b"new"] * new_count

    async def make_again() -> None:
        await store.change(TopicPut("orders", 1, 1, "rw"))
        if again:
            await store.append(batch("orders", 0, again, keys="all"))

    if when == "before the checkpoint":
        await make_again()
    await store.upkeep.checkpoint()
    if when == "after it":
        await make_again()
    await abandon(store)
    with structlog.testing.capture_logs() as logged:
        store = await opened(tmp_path)
    assert [line for line in logged if line["log_level"] == "warning"] == []
    if when == "after the kill":
        await make_again()

    assert store.queues.range("orders", 0) == (0, new_count)
    if again:
        read = store.queues.read("orders", 0, 0, count_max=9, bytes_max=9_999)
        assert [bytes(raw).count(b"new") for raw in read.raws()] == [1] * new_count
    await store.close()


async def test_a_kill_after_an_orderly_start_leaves_the_queues_trusted_that_were_not_used(
    tmp_path: Path,
) -> None:
    store = await opened(tmp_path)
    await store.change(TopicPut("orders", 2, 2, "rw"))
    await store.append(batch("orders", 0, [b"unused later"], keys="all"))
    await store.append(batch("orders", 1, [b"used"], keys="all"))
    await store.close()
    store = await opened(tmp_path)
    await store.append(batch("orders", 1, [b"used"], keys="all"))
    await store.upkeep.checkpoint()
    answers = all_answers(store)
    await abandon(store)

    with structlog.testing.capture_logs() as logged:
        store = await opened(tmp_path)
        await store.upkeep.mend_projections()
        assert all_answers(store) == answers

    assert [line for line in logged if line["log_level"] != "info"] == []
    await store.close()
