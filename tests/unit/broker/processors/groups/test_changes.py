"""Turns: one change of a group at a time, and none is left half done."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from eruca.contract.errors import StoreFailedError, TooLargeError
from eruca_broker.core.state.events import CommittedOffset, OffsetsCommitted
from eruca_broker.core.state.group_events import GroupPut, GroupSettings
from eruca_broker.processors.groups.changes import GroupChanges
from support.brokers import broker_of, open_broker
from support.waiting import until

pytestmark = pytest.mark.anyio


async def test_changes_of_one_group_take_turns_and_those_of_others_do_not_wait(
    tmp_path: Path,
) -> None:
    async with open_broker(tmp_path) as app:
        changes = GroupChanges(broker_of(app).store)
        order: list[str] = []
        leave = asyncio.Event()

        async def take(group: str, name: str, gone: asyncio.Event | None = None) -> None:
            async with changes.turn(group):
                order.append(name)
                if gone is not None:
                    await gone.wait()

        first = asyncio.create_task(take("g", "first", leave))
        second = asyncio.create_task(take("g", "second"))
        await until(lambda: order)
        await take("h", "other group")
        assert order == ["first", "other group"]
        leave.set()
        await asyncio.gather(first, second)

        assert order == ["first", "other group", "second"]
        assert changes.turn_count == 0


async def test_who_is_cancelled_has_its_turn_until_its_change_is_in_effect(tmp_path: Path) -> None:
    async with open_broker(tmp_path) as app:
        store = broker_of(app).store
        changes = GroupChanges(store)

        async def change() -> None:
            async with changes.turn("g"):
                await changes.record(GroupPut("g", GroupSettings(ordered=True), 1))

        task = asyncio.create_task(change())
        await asyncio.sleep(0)  # it runs until it waits for its event
        assert changes.turn_count == 1
        task.cancel()
        async with changes.turn("g"):
            assert store.state.groups["g"].settings.ordered
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_change_that_the_store_refuses_changes_nothing(tmp_path: Path) -> None:
    async with open_broker(tmp_path) as app:
        store = broker_of(app).store
        changes = GroupChanges(store)
        store.refusal = StoreFailedError("broken")

        with pytest.raises(StoreFailedError):
            await changes.record(GroupPut("g", GroupSettings(), 1))
        assert "g" not in store.state.groups
        assert store.state.runs == 0

        store.refusal = None
        await changes.record(GroupPut("g", GroupSettings(), 1))
        await changes.record()
        assert "g" in store.state.groups
        assert store.state.runs == 1


def commit(group: str, queue_count: int) -> OffsetsCommitted:
    return OffsetsCommitted(group, [CommittedOffset("t", n, 1) for n in range(queue_count)])


async def test_of_changes_that_belong_together_none_is_made_where_one_is_too_large(
    tmp_path: Path,
) -> None:
    async with open_broker(tmp_path, segment_bytes=64 * 1024) as app:
        store = broker_of(app).store
        changes = GroupChanges(store)

        with pytest.raises(TooLargeError):
            await changes.record(commit("small", 1), commit("large", 20_000))

        assert store.state.committed_offset("small", "t", 0) is None
        assert store.state.runs == 0

        with pytest.raises(TooLargeError):
            await changes.record_each([commit("small", 1), commit("large", 20_000)])

        assert store.state.committed_offset("small", "t", 0) == 1
        assert store.state.committed_offset("large", "t", 0) is None
        assert store.state.runs == 1
