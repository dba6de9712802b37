"""A replica copies runs that are not confirmed yet, and shows none of them before they are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eruca.contract.errors import DiskFullError
from eruca_broker.core.log.copied_run import RefusedRunError
from eruca_broker.core.state.events import TopicDeleted
from eruca_broker.store.settings import FlushMode
from support.copied_stores import (
    began,
    change,
    confirmed,
    durable,
    feed,
    lead,
    log_of,
    opened_replica,
    pair,
    queue_ends,
    send,
)
from support.limits import file_size_limit
from support.message_stores import BOTH_MODES, ORDERS, bodies
from support.stores import all_answers

pytestmark = pytest.mark.anyio


@BOTH_MODES
async def test_runs_that_follow_each_other_unconfirmed_are_visible_and_passed_on_as_wholes(
    tmp_path: Path, mode: FlushMode
) -> None:
    """Rule 4: nothing shows which of their batches the master appended together."""
    async with pair(tmp_path, mode) as (one, two):
        begin = two.visible_offset
        ends = [begin]
        for _ in range(3):
            sent = [*await send(one, *"ab"), *await send(one, *"cd", queue_id=1)]
            await feed(two, one, 10**6)
            ends.append(two.log_max_offset)
        assert len(list(two._writer.unpublished())) == 3 * 2  # one for each queue of a run
        three = await opened_replica(tmp_path / "three", mode)
        while three.log_max_offset < begin:
            at = three.log_max_offset
            await three.role.copy(memoryview(b"".join(one.log.run(at, 10**6))), at)

        for offset in range(begin, ends[-2]):
            two.role.confirm(offset)
            assert two.visible_offset == max(end for end in ends if end <= offset)
        one.role.follow()
        await asyncio.gather(*sent, return_exceptions=True)
        leading = two.role.lead(began(2))
        await durable(two)
        run = b"".join(two.log.run(ends[-2], 1))
        assert ends[-2] + len(run) == ends[-1]

        await feed(three, two, 1)
        await confirmed(two)
        await leading
        await confirmed(three)
        assert all_answers(two) == all_answers(three)
        await three.close()


async def test_a_replica_that_has_confirmed_nothing_yet_knows_whose_log_it_has(
    tmp_path: Path,
) -> None:
    one, other = await opened_replica(tmp_path / "one"), await opened_replica(tmp_path / "other")
    replica = await opened_replica(tmp_path / "replica")
    for master in (one, other):
        await lead(master, 1)
    await feed(replica, one)
    await change(other, ORDERS)
    await confirmed(other)
    while other.segment_count == 1:
        await send(other, "x" * 900)
    await confirmed(other)
    end = replica.log_max_offset
    run = b"".join(other.log.run(end, 10**6))

    with pytest.raises(RefusedRunError, match=f"a snapshot of log {one.state.log_id}, found one"):
        await replica.role.copy(memoryview(run), end)

    assert replica.log_max_offset == end
    for store in (one, other, replica):
        await store.close()


@BOTH_MODES
async def test_a_replica_confirms_nothing_by_itself_with_a_hook_or_without(
    tmp_path: Path, mode: FlushMode
) -> None:
    """Rule 7."""
    async with pair(tmp_path, mode) as (one, two):
        visible = two.visible_offset
        two.role.on_durable = None
        await send(one, "a")
        await feed(two, one)
        assert two.visible_offset == visible

        await confirmed(two)
        await confirmed(one)
        assert bodies(two) == bodies(one) == [b"a"]


@BOTH_MODES
async def test_a_run_that_could_not_be_written_leaves_the_queue_offsets_as_they_were(
    tmp_path: Path, mode: FlushMode
) -> None:
    """It ends a topic, and begins another of its name."""
    async with pair(tmp_path, mode) as (one, two):
        await send(one, *"abc")
        await confirmed(one)
        await feed(two, one)
        await confirmed(two)
        for event in (TopicDeleted("orders"), ORDERS):
            await change(one, event)
            await confirmed(one)
        await send(one, "d")
        await send(one, "e", queue_id=1)
        begin = two.log_max_offset
        whole = b"".join([*one.log.run(begin, 10**6), *one.log.run(one.visible_offset, 10**6)])
        before = log_of(two), queue_ends(two), all_answers(two)
        assert before[1] == {("orders", 0): 3}

        with file_size_limit(0), pytest.raises(DiskFullError):
            await two.role.copy(memoryview(whole), begin)

        await two.upkeep.probe_disk()
        assert not two.is_leaving("orders")
        assert (log_of(two), queue_ends(two), all_answers(two)) == before
        await two.role.copy(memoryview(whole), begin)
        assert queue_ends(two) == {("orders", 0): 1, ("orders", 1): 1}
        await confirmed(one)
        await confirmed(two)
        assert all_answers(one) == all_answers(two)
