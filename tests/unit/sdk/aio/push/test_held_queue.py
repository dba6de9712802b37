"""Held queues: filled by the fetcher, followed where a queue's range moves, idle when drained."""

from __future__ import annotations

import asyncio

import pytest

from eruca.aio.pulling.broker_fetcher import Prefetch
from eruca.aio.push.held_queue import HeldQueue
from eruca.contract.records import Record, encode_record
from eruca.core.consuming.flow_control import FlowLimits
from eruca.core.consuming.orderly_result import Gate
from eruca.core.consuming.session import Session
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage

pytestmark = pytest.mark.anyio

QUEUE = MessageQueue("orders", "a", 0)


class Intake:
    """Writes down its calls."""

    def __init__(self, *, buries: bool = False) -> None:
        self.told: list[object] = []
        self.buries = buries

    def put(self, held: HeldQueue, messages: list[ReceivedMessage]) -> None:
        self.told.append([message.queue_offset for message in messages])

    def restart(self, held: HeldQueue) -> None:
        self.told.append("restart")

    def progressed(self, held: HeldQueue) -> None:
        self.told.append(held.process.commit_offset)

    def skipped(self, held: HeldQueue, message: ReceivedMessage) -> bool:
        self.told.append(message)
        return self.buries


def message(offset: int) -> ReceivedMessage:
    record = encode_record(Record("orders", b"body", queue_offset=offset))
    return ReceivedMessage(QUEUE, offset, record, 0, len(record))


def held_at(offset: int | None, intake: Intake, **limits: int) -> HeldQueue:
    session = Session(10.0)
    session.renew(100.0, 10.0)
    return HeldQueue(
        QUEUE,
        model="clustering",
        limits=FlowLimits(**{"count_max": 1_000, "size_max": 10**8, "span_max": 2_000, **limits}),
        prefetch=Prefetch(1_000, 10**6),
        intake=intake,
        offset=offset,
        token=7,
        session=session,
    )


def test_what_is_pulled_goes_to_the_intake_and_is_held() -> None:
    intake = Intake()
    held = held_at(5, intake)

    size = held.put([message(5), message(6)], 7, held.epoch)

    assert intake.told == [[5, 6]]
    assert (held.count, held.size, held.fetch_offset) == (2, size, 7)


def test_no_commit_passes_a_damaged_message_that_is_still_to_be_buried() -> None:
    intake = Intake(buries=True)
    held = held_at(5, intake)

    held.put_damaged("at log offset 77: rotten", 6, held.epoch)
    held.put([message(6)], 7, held.epoch)

    assert held.process.commit_offset == 5
    skipped = intake.told[0]
    assert isinstance(skipped, ReceivedMessage)
    held.freed(held.process.remove([skipped]))
    assert held.process.commit_offset == 6


def test_a_damaged_message_is_told_of_and_passed_and_no_handler_gets_it() -> None:
    intake = Intake()
    held = held_at(5, intake)

    held.put_damaged("at log offset 77: rotten", 6, held.epoch)

    skipped, *others = intake.told
    assert isinstance(skipped, ReceivedMessage)
    assert (skipped.queue_offset, skipped.damage) == (5, "at log offset 77: rotten")
    assert not any(isinstance(told, list) for told in others)  # nothing went to the runner
    assert (held.fetch_offset, held.process.commit_offset, held.count) == (6, 6, 0)


def test_a_pull_that_found_nothing_moves_what_may_be_committed() -> None:
    intake = Intake()
    held = held_at(5, intake)

    held.put([], 40, held.epoch)

    assert intake.told == [40]


def test_answers_that_come_late_are_dropped() -> None:
    intake = Intake()
    held = held_at(5, intake)
    held.put([message(5)], 6, held.epoch - 1)
    held.is_draining = True
    held.put([message(5)], 6, held.epoch)

    assert intake.told == []
    assert held.count == 0


def test_there_is_room_until_half_of_a_bound_is_held() -> None:
    held = held_at(0, Intake(), count_max=4)
    held.put([message(0), message(1)], 2, held.epoch)
    assert held.has_room(0)

    held.put([message(2)], 3, held.epoch)
    assert not held.has_room(0)


def test_reading_goes_on_where_retention_has_left_something(
    caplog: pytest.LogCaptureFixture,
) -> None:
    intake = Intake()
    held = held_at(5, intake)
    held.put([message(5)], 6, held.epoch)

    held.fetch_offset = 50  # what the fetcher does when the broker says so
    held.has_room(0)

    assert "no message at offset 6" in caplog.text
    assert held.count == 1  # what was held is good
    assert held.process.next_offset == 50


def test_a_queue_that_has_been_created_again_is_read_from_its_new_end() -> None:
    intake = Intake()
    held = held_at(50, intake)
    held.put([message(50)], 51, held.epoch)

    held.fetch_offset = 3
    held.has_room(0)

    assert "restart" in intake.told
    assert (held.count, held.process.commit_offset) == (0, 3)


def test_a_start_that_was_found_out_is_no_surprise(caplog: pytest.LogCaptureFixture) -> None:
    held = held_at(None, Intake())
    held.fetch_offset = 12

    held.follow()

    assert caplog.text == ""
    assert held.is_begun
    assert held.process.commit_offset == 12


def test_a_batch_begins_under_a_session_that_lives_and_while_nobody_wants_the_queue() -> None:
    held = held_at(0, Intake())
    assert held.gate(110.0) is Gate.OPEN
    assert held.gate(110.1) is Gate.WAIT

    held.is_draining = True
    assert held.gate(105.0) is Gate.SHUT


async def test_a_drained_queue_is_idle_when_its_last_batch_has_ended() -> None:
    held = held_at(0, Intake())
    held.begin()
    held.begin()
    held.is_draining = True
    waiting = asyncio.create_task(held.until_idle())

    held.end()
    await asyncio.sleep(0)
    assert not waiting.done()
    held.end()
    await waiting


def test_a_dropped_queue_holds_nothing_any_more() -> None:
    intake = Intake()
    prefetch = Prefetch(1_000, 10**6)
    held = HeldQueue(
        QUEUE,
        model="clustering",
        limits=FlowLimits(1_000, 10**8, 2_000),
        prefetch=prefetch,
        intake=intake,
        offset=0,
    )
    prefetch.size += held.put([message(0)], 1, held.epoch)

    held.drop()

    assert (held.count, prefetch.size) == (0, 0)
    assert held.is_lost()
