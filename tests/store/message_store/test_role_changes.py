"""A store changes its role in place: a replica becomes master of an epoch, a master follows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eruca.contract.errors import NotMasterForSureError, OutcomeUnknownError, StoreFailedError
from eruca_broker.core.replication.epochs import Epoch
from eruca_broker.core.state.events import OffsetsCommitted, TopicDeleted
from eruca_broker.store.settings import FlushMode
from support.copied_stores import (
    assert_sound,
    began,
    change,
    confirmed,
    durable,
    feed,
    lead,
    log_of,
    pair,
    queue_ends,
    send,
)
from support.message_stores import BOTH_MODES, ORDERS, Flushes, bodies
from support.stores import all_answers, batch
from support.waiting import until

pytestmark = pytest.mark.anyio


@BOTH_MODES
async def test_a_new_master_confirms_what_was_left_only_with_its_epoch(
    tmp_path: Path, mode: FlushMode
) -> None:
    """Its queue offsets continue at the end of the log, not at what is visible."""
    async with pair(tmp_path, mode) as (one, two):
        visible = two.visible_offset
        left = await send(one, *"abcde")
        await feed(two, one)
        end = two.log_max_offset

        leading = two.role.lead(began(2))
        sent = await send(two, "f")

        assert not two.role.is_replica
        assert two.role.epochs().epochs == (*one.role.epochs().epochs, Epoch(2, end))
        epoch_end = next(two._writer.unpublished()).log_offset  # of the first that is left
        for offset in (visible, epoch_end, end, end + 1):
            two.role.confirm(offset)
            assert two.visible_offset == visible
        assert not leading.done()
        assert two.state.epochs.last == 1

        await confirmed(two)
        assert (await leading).log_offset == end
        assert (await sent[0]).queue_offset == 5
        assert bodies(two) == [b"a", b"b", b"c", b"d", b"e", b"f"]
        assert two.state.epochs == two.role.epochs()
        assert not any(future.done() for future in left)
        one.role.follow()
        await feed(one, two)
        assert log_of(one) == log_of(two)
        await confirmed(one)
        assert all_answers(one) == all_answers(two)
        await assert_sound(one, tmp_path)


@BOTH_MODES
async def test_roles_go_back_and_forth_and_both_logs_stay_equal(
    tmp_path: Path, mode: FlushMode
) -> None:
    async with pair(tmp_path, mode) as (one, two):
        master, replica = one, two
        for epoch in range(2, 12):
            await send(master, *("x" * 300 for _ in range(11)), queue_id=epoch % 2)
            await feed(replica, master)
            if epoch % 3:
                await confirmed(master)
                replica.role.confirm(master.confirmed_offset)
            await send(master, "y" * 90)
            await feed(replica, master)

            master.role.follow()
            master, replica = replica, master
            leading = master.role.lead(began(epoch))
            await durable(master)
            await feed(replica, master)
            assert log_of(master) == log_of(replica)
            await confirmed(master)
            await confirmed(replica)
            await leading
            assert all_answers(master) == all_answers(replica)
            assert master.role.epochs() == replica.role.epochs()

        assert len(log_of(one)) > 1
        await assert_sound(one, tmp_path)
        await assert_sound(two, tmp_path)
        assert one.queues.range("orders", 0)[1] + one.queues.range("orders", 1)[1] == 10 * 12


@BOTH_MODES
async def test_the_calls_of_a_master_that_follows_end_with_what_is_known(
    tmp_path: Path, mode: FlushMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path, mode) as (one, two):
        waiting = await send(one, "durable")
        await feed(two, one)
        flushes = Flushes(monkeypatch)
        flushes.may_end.clear()
        waiting.append(one.append(batch("orders", 0, [b"flushing"])))
        await until(lambda: one.log_max_offset == one._log.end_offset)
        written = one.log_max_offset
        taken = [one.append(batch("orders", 0, [b"accepted"]))]
        group = one.append_group([batch("orders", queue_id, [b"accepted"]) for queue_id in (0, 1)])

        one.role.follow()

        assert one.role.is_replica
        assert one._log.end_offset == one.log_max_offset == written
        flushes.may_end.set()
        outcomes = await asyncio.gather(*waiting, *taken, group, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [
            *[OutcomeUnknownError] * 2, *[NotMasterForSureError] * 2
        ]  # fmt: skip
        with pytest.raises(NotMasterForSureError):
            one.append(batch("orders", 0, [b"refused"]))
        assert not bodies(one)

        await lead(two, 2)
        assert bodies(two) == [b"durable"]
        one.role.confirm(await durable(one))
        assert bodies(one) == [b"durable", b"flushing"]


async def test_what_was_taken_back_leaves_its_queue_offsets_to_others(tmp_path: Path) -> None:
    async with pair(tmp_path, FlushMode.ASYNC) as (one, two):
        await confirmed(one)
        taken = one.append(batch("orders", 1, [b"never"]))
        one.role.follow()
        with pytest.raises(NotMasterForSureError):
            await taken

        await lead(two, 2)
        sent = await send(two, "first", queue_id=1)
        await confirmed(two)
        assert (await sent[0]).queue_offset == 0
        await feed(one, two)
        await confirmed(one)
        assert bodies(one, 1) == [b"first"]
        assert log_of(one) == log_of(two)


@BOTH_MODES
async def test_topics_deleted_and_made_again_in_what_was_left_begin_at_offset_0(
    tmp_path: Path, mode: FlushMode
) -> None:
    async with pair(tmp_path, mode) as (one, two):
        await send(one, *"abc")
        await confirmed(one)
        await feed(two, one)
        await confirmed(two)
        visible = one.visible_offset
        for round_ in range(3):
            changing = await change(one, TopicDeleted("orders"))
            await feed(two, one, 1)
            assert two.visible_offset == visible
            one.role.confirm(one.durable_offset)
            await asyncio.gather(*changing)
            await change(one, ORDERS)
            await confirmed(one)
            sent = await send(one, *("d" * (round_ + 1)))
            await feed(two, one, 1)
            await confirmed(one)
            assert [(await it).queue_offset for it in sent] == list(range(round_ + 1))

        assert two.queues.range("orders", 0) == (0, 3)  # the replica has confirmed none of it
        one.role.follow()
        leading = two.role.lead(began(2))
        changing = await change(two, OffsetsCommitted("g", []))
        ends = queue_ends(two)
        await confirmed(two)
        await asyncio.gather(leading, *changing)
        assert ends == {("orders", 0): 3}
        [receipt] = await send(two, "e")
        await confirmed(two)
        assert (await receipt).queue_offset == 3
        await assert_sound(two, tmp_path)


async def test_a_former_master_shows_what_another_one_confirms_of_its_predecessors(
    tmp_path: Path,
) -> None:
    """Its own epoch, which is not confirmed, no longer holds that up."""
    async with pair(tmp_path, FlushMode.ASYNC) as (one, two):
        [sent] = await send(one, "a")
        await feed(two, one)
        end = two.log_max_offset
        leading = two.role.lead(began(2))
        await durable(two)
        two.role.confirm(end)
        assert not bodies(two)

        two.role.follow()
        two.role.confirm(end)

        assert bodies(two) == [b"a"]
        assert two.visible_offset == end < two.log_max_offset
        one.role.follow()
        assert [type(it) for it in await asyncio.gather(sent, leading, return_exceptions=True)] == [
            OutcomeUnknownError
        ] * 2


async def test_a_master_of_a_moment_ago_leads_while_its_flush_is_in_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path, FlushMode.SYNC) as (one, two):
        flushes = Flushes(monkeypatch)
        flushes.may_end.clear()
        sent = one.append(batch("orders", 0, [b"a"]))
        await until(lambda: one.log_max_offset == one._log.end_offset)
        one.role.follow()

        leading = one.role.lead(began(2))
        later = one.append(batch("orders", 0, [b"b"]))
        flushes.may_end.set()
        await confirmed(one)

        with pytest.raises(OutcomeUnknownError):
            await sent
        await leading
        assert (await later).queue_offset == 1
        assert bodies(one) == [b"a", b"b"]
        await feed(two, one)
        await confirmed(two)
        assert log_of(one) == log_of(two)


async def test_a_replica_whose_flush_fails_neither_copies_nor_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path, FlushMode.SYNC) as (one, two):
        waiting = await send(one, "durable")
        await feed(two, one)
        end = two.durable_offset
        flushes = Flushes(monkeypatch)
        for is_failing in (True, False):
            flushes.failing = False
            waiting += await send(one, "lost")
            flushes.failing = is_failing
            with pytest.raises(StoreFailedError):
                await feed(two, one)

        with pytest.raises(StoreFailedError):
            two.role.lead(began(2))
        two.role.confirm(two.log_max_offset)
        assert two.role.is_replica
        assert two.visible_offset == two.durable_offset == end < two.log_max_offset
        assert bodies(two) == [b"durable"]
        one.role.follow()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_run_that_is_being_copied_outlasts_a_call_to_follow(tmp_path: Path) -> None:
    async with pair(tmp_path, FlushMode.SYNC) as (one, two):
        await send(one, "a")
        begin = two.log_max_offset
        run = memoryview(b"".join(one.log.run(begin, 10**6)))
        copying = asyncio.create_task(two.role.copy(run, begin))
        await asyncio.sleep(0)
        two.role.follow()
        with pytest.raises(AssertionError, match="a run is being copied"):
            two.role.lead(began(2))

        await copying
        assert two.durable_offset == one.log_max_offset
        await confirmed(one)


async def test_only_a_replica_leads_and_following_twice_changes_nothing(tmp_path: Path) -> None:
    async with pair(tmp_path, FlushMode.ASYNC) as (one, two):
        with pytest.raises(AssertionError, match="begins no further term"):
            one.role.lead(began(2))
        with pytest.raises(AssertionError, match="rule 13"):
            two.role.lead(began(1))
        sent = await send(one, "a")
        one.role.follow()
        one.role.follow()
        with pytest.raises(OutcomeUnknownError):
            await sent[0]
        assert one.role.epochs() == two.role.epochs()
