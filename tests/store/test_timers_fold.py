"""Pending timers when a store is opened: after a stop, and where RocketMQ had the store before."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from eruca.contract.names import SCHEDULE_TOPIC, TIMER_TOPIC
from eruca.contract.records import Record, decode_record, encode_record
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.records.scheduled import Destination, Wait, waiting
from eruca_broker.core.state.topic_events import TopicPut
from eruca_broker.processors.timers import Timers
from eruca_broker.store.config import delay_offsets
from eruca_broker.store.config.rocketmq_json import UnreadableConfigError
from eruca_broker.store.message_store import MessageStore
from support.clocks import ManualClock
from support.rocketmq_stores import SEGMENT_SIZE, Stored, write_log, write_on
from support.stores import abandon, batch, message, small_settings

SETTINGS = small_settings(segment_bytes=SEGMENT_SIZE)
CLOCK = ManualClock()
NOW = CLOCK.now_ms()


def note_delivered(directory: Path, text: str) -> None:
    (directory / "config").mkdir(exist_ok=True)
    (directory / "config" / "delayOffset.json").write_text(text)


def run(work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - what the work returns
    return asyncio.run(work)


async def pending(directory: Path) -> list[tuple[str, int, int]]:
    """Open the store and return topic, queue offset and remaining time of what waits."""
    store = await MessageStore.open(directory, SETTINGS, CLOCK)
    found = []
    for timer in store.timers.following(None):
        record = decode_record(store.log.raw(timer.id))
        found.append((record.topic, record.queue_offset, timer.due_ms - NOW))
    await store.close()
    return found


FROM = {"REAL_TOPIC": "orders", "REAL_QID": "0"}
LEVELS = [
    Stored(SCHEDULE_TOPIC, level - 1, FROM | {"DELAY": str(level)}) for level in (1, 1, 3, 3, 3, 9)
]
ROLLED = {"TIMER_OUT_MS": str(NOW + 500), "UNIQ_KEY": "rolled"}
TIMES = [
    Stored(TIMER_TOPIC, 0, FROM | {"TIMER_OUT_MS": str(NOW - 1), "UNIQ_KEY": "past"}),
    Stored(TIMER_TOPIC, 0, FROM | ROLLED),
    Stored(TIMER_TOPIC, 0, FROM | ROLLED | {"TIMER_ROLL_TIMES": "1"}),
    Stored(TIMER_TOPIC, 0, FROM | {"TIMER_OUT_MS": str(NOW + 700)}),
    Stored(TIMER_TOPIC, 0, FROM | {"TIMER_OUT_MS": "soon"}),
    Stored("orders", 0, {"TIMER_OUT_MS": str(NOW - 1), "UNIQ_KEY": "past"}),
]


def test_what_rocketmq_left_pending_is_taken_over_once(tmp_path: Path) -> None:
    write_log(tmp_path, [*LEVELS, *TIMES], NOW)
    note_delivered(tmp_path, '{"dataVersion":{"counter":1},"offsetTable":{1:2,3:1}}')
    expected = [
        (TIMER_TOPIC, 2, 500),
        (TIMER_TOPIC, 3, 700),
        (SCHEDULE_TOPIC, 1, 10_000),
        (SCHEDULE_TOPIC, 2, 10_000),
        (SCHEDULE_TOPIC, 0, 300_000),
    ]

    assert run(pending(tmp_path)) == expected
    assert run(pending(tmp_path)) == expected  # now from Eruca's own snapshot


def test_where_nothing_tells_what_was_delivered_all_of_it_waits(tmp_path: Path) -> None:
    write_log(tmp_path, LEVELS, NOW)

    assert len(run(pending(tmp_path))) == len(LEVELS)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"offsetTable":[]}', '{"offsetTable":{"x":1}}'])
def test_a_damaged_file_of_what_rocketmq_has_delivered_is_refused(
    tmp_path: Path, text: str
) -> None:
    """It is the only one to know: without it, messages would be delivered a second time."""
    write_log(tmp_path, LEVELS, NOW)
    note_delivered(tmp_path, text)

    for _ in range(2):
        with pytest.raises(UnreadableConfigError, match=r"delayOffset\.json"):
            run(pending(tmp_path))
    note_delivered(tmp_path, '{"offsetTable":{}}')
    assert len(run(pending(tmp_path))) == len(LEVELS)


def test_a_store_that_is_closed_tells_rocketmq_where_each_level_stands(tmp_path: Path) -> None:
    async def work() -> None:
        clock = ManualClock()
        store = await MessageStore.open(tmp_path, SETTINGS, clock)
        await store.change(TopicPut("orders", 1, 1, "rw"))
        raw = encode_record(Record(topic="orders", body=b"body"))
        for level in (1, 1, 5, 1):
            if level == 5:
                clock.advance(3)
                assert await Timers(store, clock).fire() == 2
            wait = Wait(level=level)
            record = waiting(raw, wait, Destination("orders", 0))
            await store.append(batch_of_records(*wait.place, [record]))
        await store.close()

    run(work())

    table = json.loads((tmp_path / "config" / "delayOffset.json").read_text())["offsetTable"]
    assert table == {"1": 2, "5": 0}
    assert delay_offsets.load(tmp_path) == {1: 2, 5: 0}


def test_what_rocketmq_delivered_meanwhile_is_not_delivered_again(tmp_path: Path) -> None:
    write_log(tmp_path, LEVELS, NOW)
    assert len(run(pending(tmp_path))) == 6

    note_delivered(tmp_path, '{"offsetTable":{3:2,9:1}}')

    assert run(pending(tmp_path)) == [
        (SCHEDULE_TOPIC, 0, 1_000),
        (SCHEDULE_TOPIC, 1, 1_000),
        (SCHEDULE_TOPIC, 2, 10_000),
    ]


def waits(unique_id: str, due_ms: int, **more: str) -> Stored:
    """Return a message of RocketMQ's timer topic."""
    properties = FROM | {"TIMER_OUT_MS": str(due_ms), "UNIQ_KEY": unique_id}
    return Stored(TIMER_TOPIC, 0, properties | more)


def delivered(unique_id: str, due_ms: int, topic: str = "orders") -> Stored:
    """Return what RocketMQ stores when it delivers one: without its real topic, with its time."""
    times = {"TIMER_OUT_MS": str(due_ms), "TIMER_ENQUEUE_MS": "1", "TIMER_DEQUEUE_MS": "2"}
    return Stored(topic, 0, {"UNIQ_KEY": unique_id} | times)


DUE = NOW - 5_000
LEFT_BY_ROCKETMQ = [
    waits("delivered", DUE),
    waits("held up", DUE),
    waits("of another group", DUE, REAL_TOPIC="%RETRY%a"),
    waits("of another group", DUE, REAL_TOPIC="%RETRY%b"),
    waits("recalled", NOW + 9_000),
    waits("recalled", NOW + 9_000, TIMER_DEL_UNIQKEY="recalled"),
    waits("recalled later", NOW + 9_000),
    waits("recalled later", NOW + 9_000, TIMER_DEL_UNIQKEY="orders+recalled later"),
    waits("asked for twice", DUE - 1_000),
    waits("asked for twice", NOW + 8_000),
    delivered("delivered", DUE),
    delivered("of another group", DUE, "%RETRY%a"),
    delivered("asked for twice", DUE - 1_000),
]
STILL_WAITING = [(TIMER_TOPIC, 1, -5_000), (TIMER_TOPIC, 3, -5_000), (TIMER_TOPIC, 9, 8_000)]


def test_of_rocketmqs_timer_topic_waits_what_the_log_does_not_hold_delivered_or_recalled(
    tmp_path: Path,
) -> None:
    write_log(tmp_path, LEFT_BY_ROCKETMQ, NOW)

    assert run(pending(tmp_path)) == STILL_WAITING
    assert run(pending(tmp_path)) == STILL_WAITING


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
def test_what_rocketmq_has_made_of_timers_meanwhile_holds(tmp_path: Path, is_killed: bool) -> None:
    eruca_left = [waits("delivered", DUE), waits("held up", DUE), waits("rolled", NOW + 9_000)]
    write_log(tmp_path, [*eruca_left, *LEVELS], NOW - 10_000)
    assert len(run(pending(tmp_path))) == 3 + len(LEVELS)

    write_on(
        tmp_path,
        [
            delivered("delivered", DUE),
            waits("rolled", NOW + 9_000, TIMER_DEQUEUE_MS="1", TIMER_ROLL_TIMES="1"),
            waits("set meanwhile", NOW + 7_000),
            waits("recalled meanwhile", NOW + 6_000),
            waits("recalled meanwhile", NOW + 6_000, TIMER_DEL_UNIQKEY="recalled meanwhile"),
        ],
        NOW,
    )
    if not is_killed:
        (tmp_path / "abort").unlink()
        (tmp_path / "checkpoint").write_bytes(bytes(4096))

    expected = [(TIMER_TOPIC, 1, -5_000), (TIMER_TOPIC, 4, 7_000), (TIMER_TOPIC, 3, 9_000)]
    for _ in range(2):
        found = run(pending(tmp_path))
        assert [timer for timer in found if timer[0] == TIMER_TOPIC] == expected
        assert len(found) == len(expected) + len(LEVELS)


async def wait_and_be_killed(directory: Path, count: int) -> None:
    """Let some messages wait at a delay level, durably."""
    store = await MessageStore.open(directory, SETTINGS, CLOCK)
    wait = Wait(level=3)
    for _ in range(count):
        raw = encode_record(Record(topic="orders", body=b"body"))
        record = waiting(raw, wait, Destination("orders", 0))
        await store.append(batch_of_records(*wait.place, [record]))
    await store.upkeep.flush()
    await abandon(store)


def test_a_message_waits_whose_offset_rocketmq_once_delivered_another_at(tmp_path: Path) -> None:
    write_log(tmp_path, LEVELS, NOW)
    note_delivered(tmp_path, '{"offsetTable":{1:2,3:4,9:1}}')  # a power cut took the last one

    run(wait_and_be_killed(tmp_path, 2))

    assert run(pending(tmp_path)) == [(SCHEDULE_TOPIC, 3, 10_000), (SCHEDULE_TOPIC, 4, 10_000)]


def test_a_log_from_a_backup_waits_for_what_was_delivered_after_it_was_taken(
    tmp_path: Path,
) -> None:
    async def deliver_all(directory: Path) -> None:
        clock = ManualClock()
        store = await MessageStore.open(directory, SETTINGS, clock)
        clock.advance(60)
        assert await Timers(store, clock).fire() == 3
        await store.close()

    backup, live = tmp_path / "backup", tmp_path / "live"
    run(wait_and_be_killed(live, 3))
    shutil.copytree(live / "commitlog", backup)
    run(deliver_all(live))
    for lost in ("commitlog", "consumequeue", "index"):
        shutil.rmtree(live / lost)
    (live / "checkpoint").unlink()
    shutil.copytree(backup, live / "commitlog")

    run(wait_and_be_killed(live, 2))

    assert len(run(pending(live))) == 5


def test_what_a_client_writes_ends_no_timer_of_a_store_that_rocketmq_never_had(
    tmp_path: Path,
) -> None:
    async def wait_write_and_be_killed() -> None:
        clock = ManualClock()
        store = await MessageStore.open(tmp_path, SETTINGS, clock)
        await store.change(TopicPut("orders", 1, 1, "rw"))
        wait = Wait(deliver_at_ms=NOW + 1_000)
        for unique_id in (None, "same", "same"):
            raw = message("orders", 0, b"body", unique_key=unique_id)
            record = waiting(raw, wait, Destination("orders", 0))
            await store.append(batch_of_records(*wait.place, [record]))
        clock.advance(2)
        await store.append(batch("orders", 0, [b"RocketMQ notes TIMER_DEQUEUE_MS"]))
        await abandon(store)

    run(wait_write_and_be_killed())

    assert run(pending(tmp_path)) == [(TIMER_TOPIC, number, 1_000) for number in range(3)]
