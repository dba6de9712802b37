"""A lane whose only sender awaits each message sends it in the caller's task, at once."""

from __future__ import annotations

import asyncio

import pytest

import eruca
from eruca.aio.sending.send_lane import PendingBatch, SendLane
from eruca.contract.errors import ClosedError, TransportError
from eruca.contract.messages import BatchReceipt
from eruca.contract.records import NO_HOST
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.producing.batching import Batching
from eruca.core.producing.send_result import SendResult, StoredBatch
from support.waiting import until

pytestmark = pytest.mark.anyio

MESSAGE = eruca.Message("orders", "an order")
QUEUE = MessageQueue("orders", "a", 0)


class Broker:
    """Stores batches; if a gate is shut, once the test opens it."""

    def __init__(self, *, in_flight_max: int = 4) -> None:
        self.batches: list[PendingBatch] = []
        self.tasks: list[asyncio.Task[None] | None] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.lane = SendLane(
            self.send,
            self.send_one,
            None,
            limits=Batching(),
            linger=0.001,
            in_flight_max=in_flight_max,
            timeout=3.0,
        )

    async def send(self, batch: PendingBatch) -> None:
        stored = await self.send_one(batch)
        for future in batch.futures:
            if not future.done():
                future.set_result(stored.result())

    async def send_one(self, batch: PendingBatch) -> StoredBatch:
        self.batches.append(batch)
        self.tasks.append(asyncio.current_task())
        await self.gate.wait()
        return stored_as(len(self.batches))

    async def one(self) -> SendResult:
        """Send as a producer does."""
        if self.lane.is_lone:
            return await self.lane.send_alone(MESSAGE, 10)
        return await self.lane.add(MESSAGE, 10)

    @property
    def sizes(self) -> list[int]:
        return [len(batch.messages) for batch in self.batches]


def stored_as(number: int) -> StoredBatch:
    """Return a place that only the batch of this number has."""
    receipt = BatchReceipt(
        queue_id=0,
        queue_offset=number,
        log_offset=number,
        count=1,
        stored_at_ms=0,
        durability="written",
    )
    return StoredBatch(("id",), QUEUE, receipt, b"", NO_HOST)


async def test_the_second_of_messages_sent_one_after_the_other_needs_no_task_of_its_own() -> None:
    broker = Broker()

    offsets = [(await broker.one()).queue_offset for _ in range(3)]

    assert offsets == [1, 2, 3]
    assert broker.tasks[0] is not asyncio.current_task()
    assert broker.tasks[1:] == [asyncio.current_task()] * 2
    assert broker.lane.is_idle


async def test_company_shares_the_next_batch() -> None:
    broker = Broker()
    await broker.one()
    broker.gate.clear()
    alone = asyncio.create_task(broker.one())
    await until(lambda: len(broker.batches) == 2)
    company = [asyncio.create_task(broker.one()) for _ in range(2)]
    await asyncio.sleep(0)
    assert not broker.lane.is_lone
    broker.gate.set()
    await asyncio.gather(alone, *company)
    assert not broker.lane.is_lone

    await asyncio.gather(*(broker.one() for _ in range(3)))

    assert broker.sizes == [1, 1, 2, 3]


async def test_many_senders_that_all_wait_share_two_batches_which_take_turns() -> None:
    broker = Broker()
    broker.gate.clear()

    sending = [asyncio.create_task(broker.one()) for _ in range(1_024)]
    await until(lambda: len(broker.batches) == 3)
    more = [asyncio.create_task(broker.one()) for _ in range(1_000)]
    await until(lambda: len(broker.batches) == 4)
    broker.gate.set()

    await asyncio.gather(*sending, *more)
    assert broker.sizes == [500, 500, 24, 1_000]


async def test_a_full_batch_goes_out_where_no_other_may_be_under_way() -> None:
    broker = Broker(in_flight_max=1)

    await asyncio.gather(*(broker.one() for _ in range(1_024)))

    assert broker.sizes == [1_000, 24]


async def test_a_batch_of_many_bytes_takes_turns_with_another_one() -> None:
    broker = Broker()
    broker.gate.clear()

    futures = [broker.lane.add(MESSAGE, 400 * 1024) for _ in range(4)]
    await until(lambda: len(broker.batches) == 2)
    broker.gate.set()

    await asyncio.gather(*futures)
    assert broker.sizes == [2, 2]


async def test_a_whole_batch_ends_a_lone_lane() -> None:
    broker = Broker()
    await broker.one()
    batch = PendingBatch(None, opened_at=0.0, deadline=9e9)
    batch.messages = [MESSAGE]

    broker.lane.add_batch(batch)

    assert not broker.lane.is_lone
    await until(lambda: broker.lane.is_idle)


async def test_flushing_waits_for_a_lone_message() -> None:
    broker = Broker()
    await broker.one()
    broker.gate.clear()
    sending = asyncio.create_task(broker.one())
    await until(lambda: len(broker.batches) == 2)

    [batch] = broker.lane.flush()
    batch.finished = asyncio.get_running_loop().create_future()
    broker.gate.set()

    await batch.finished
    assert (await sending).queue_offset == 2


async def test_a_lone_message_that_the_lane_gives_up_raises_that_error_in_its_own_task() -> None:
    broker = Broker()
    await broker.one()
    broker.gate.clear()

    async def send_and_go_on() -> str:
        with pytest.raises(ClosedError, match="under way"):
            await broker.one()
        await asyncio.sleep(0)  # a cancellation that is left over would come here
        return "went on"

    sending = asyncio.create_task(send_and_go_on())
    await until(lambda: len(broker.batches) == 2)

    assert broker.lane.cancel(ClosedError("waits"), under_way=ClosedError("under way")) == []

    assert await sending == "went on"
    assert broker.lane.is_idle


async def test_a_cancelled_lone_message_leaves_the_lane_usable() -> None:
    broker = Broker()
    await broker.one()
    broker.gate.clear()
    sending = asyncio.create_task(broker.one())
    await until(lambda: len(broker.batches) == 2)

    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    broker.gate.set()

    assert (await broker.one()).queue_offset == 3


async def test_cancelled_by_the_program_and_by_the_lane_it_is_cancelled() -> None:
    broker = Broker()
    await broker.one()
    broker.gate.clear()
    sending = asyncio.create_task(broker.one())
    await until(lambda: len(broker.batches) == 2)

    sending.cancel()
    broker.lane.cancel(ClosedError("waits"), under_way=ClosedError("under way"))

    with pytest.raises(asyncio.CancelledError):
        await sending


async def test_a_lone_message_that_fails_raises_its_error() -> None:
    broker = Broker()
    await broker.one()

    async def fail(batch: PendingBatch) -> StoredBatch:
        raise TransportError("gone")

    broker.lane._send_one = fail
    with pytest.raises(TransportError, match="gone"):
        await broker.one()

    assert broker.lane.is_idle
