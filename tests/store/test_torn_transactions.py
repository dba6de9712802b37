"""Every step of a transaction is complete or did not happen, wherever a power cut tore it.

Each step is one group of records. The cut is made at every eleventh byte of it. Then the broker
takes the transaction for what it was before, and the complete group makes it what it is after. In
both cases the transaction can be finished, and its message is delivered once or never.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from eruca.contract.errors import AlreadyDecidedError, TransactionNotFoundError
from eruca.contract.records import Record
from eruca_broker.core.state.topic_events import TopicPut
from support.clocks import ManualClock
from support.log_model import read_log
from support.stores import abandon, batch, small_settings, without_log_lines
from support.torn_logs import cut_copy
from support.transaction_model import TransactionModel
from support.transaction_stores import TOPIC, TransactionStore

SETTINGS = small_settings(segment_bytes=32 * 1024)
ID = "the-one"
Step: TypeAlias = Callable[[TransactionStore], Awaitable[object]]


async def begin(broker: TransactionStore) -> None:
    await broker.begin(ID, tag="x")


async def begin_delayed(broker: TransactionStore) -> None:
    await broker.begin(ID, tag="x", delay_seconds=60)


async def check(broker: TransactionStore) -> None:
    await broker.check(ID, 1)


async def commit(broker: TransactionStore) -> None:
    await broker.decide(ID, "commit")


async def roll_back(broker: TransactionStore) -> None:
    await broker.decide(ID, "rollback")


async def give_up(broker: TransactionStore) -> None:
    await broker.expire(ID, 0)


async def commit_as_operator(broker: TransactionStore) -> None:
    await broker.decide(ID, "commit", "operator")


async def discard_as_operator(broker: TransactionStore) -> None:
    await broker.decide(ID, "rollback", "operator")


async def carry(broker: TransactionStore) -> None:
    await broker.carrier.carry_forward(broker.store.log_max_offset)


STORIES: list[list[Step]] = [
    [begin],
    [begin, check],
    [begin, commit],
    [begin, roll_back],
    [begin, give_up],
    [begin, carry],
    [begin_delayed, commit],
    [begin, check, commit],
    [begin, carry, commit],
    [begin, carry, carry],
    [begin, give_up, carry],
    [begin, give_up, commit_as_operator],
    [begin, give_up, discard_as_operator],
    [begin, give_up, carry, commit_as_operator],
]


@pytest.mark.parametrize(
    "story", STORIES, ids=lambda story: "-".join(step.__name__ for step in story)
)
def test_the_last_step_of_a_story_has_happened_or_not(tmp_path: Path, story: list[Step]) -> None:
    async def work() -> None:
        clock = ManualClock()
        broker = await TransactionStore.open(tmp_path / "whole", SETTINGS, clock)
        await broker.store.change(TopicPut(TOPIC, 1, 1, "rw"))
        await broker.store.append(batch(TOPIC, 0, [b"another"], tag="x"))
        for step in story[:-1]:
            await step(broker)
        await broker.store.upkeep.checkpoint()
        before, start = seen(broker), broker.store.log_max_offset
        await story[-1](broker)
        after, end = seen(broker), broker.store.log_max_offset
        await abandon(broker.store)
        assert before != after
        for offset in [*range(start, end, 11), end]:
            cut_copy(tmp_path / "whole", tmp_path / "cut", offset)

            broker = await TransactionStore.open(tmp_path / "cut", SETTINGS, clock)

            assert seen(broker) == (after if offset == end else before), offset
            outcome = await finish(broker)
            await broker.store.close()
            model = TransactionModel(transactional(tmp_path / "cut"))
            model.check()
            assert model.visible[ID] == (outcome == "commit")

    with without_log_lines():
        asyncio.run(work())


def seen(broker: TransactionStore) -> object:
    """Return what can be seen of the transaction and its message."""
    queue = broker.store.queues.range(TOPIC, 0), len(broker.store.timers)
    try:
        return broker.views.get(ID), queue
    except TransactionNotFoundError:
        return None, queue


async def finish(broker: TransactionStore) -> str:
    """Bring the transaction to its end, as a caller without an answer does; return which."""
    if seen(broker)[0] is None:  # type: ignore[index]
        await broker.begin(ID, tag="x")
    try:
        receipt = await broker.decide(ID, "commit", "operator")
    except AlreadyDecidedError:
        receipt = await broker.decide(ID, "rollback", "operator")
        assert receipt.repeated
    return receipt.outcome


def transactional(directory: Path) -> list[Record]:
    return [record for record in read_log(directory) if record.body != b"another"]
