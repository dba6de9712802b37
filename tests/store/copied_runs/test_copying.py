"""A replica appends runs of its master's log, and then equals the master."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from eruca.contract.errors import NotMasterForSureError
from eruca_broker.core.log.copied_run import RefusedRunError
from eruca_broker.core.state.events import TopicPut, decode_event
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode
from support.copied_runs import catch_up, copied, open_replica
from support.lived_stores import CLOCK, assert_same, settings
from support.log_model import read_log
from support.stores import abandon, all_answers, batch

pytestmark = pytest.mark.anyio


def test_the_source_has_records_of_every_kind(stored: Path) -> None:
    records = list(read_log(stored))
    events = {type(decode_event(r.body)) for r in records if r.topic == "ERUCA_SYS_EVENTS"}

    assert len(list((stored / "commitlog").iterdir())) > 4
    assert {event.__name__ for event in events} >= {
        "StateSnapshot", "TopicPut", "TopicDeleted", "GroupPut", "TimersFired",
        "TransactionBegun", "TransactionDecided", "DeliveriesLeased", "DeliveriesAcked",
        "DeliveriesNacked", "EpochBegan",
    }  # fmt: skip


@pytest.mark.parametrize("flush_mode", FlushMode)
@pytest.mark.parametrize("seed", [1, 2])
async def test_a_replica_fed_by_runs_of_any_size_equals_its_source(
    source: MessageStore, tmp_path: Path, flush_mode: FlushMode, seed: int
) -> None:
    async with open_replica(tmp_path / "replica", flush_mode) as replica:
        await catch_up(replica, source, Random(seed))

        assert_same(replica, source)
        if flush_mode is FlushMode.SYNC:
            assert replica.flushed_offset == replica.log_max_offset
    async with open_replica(tmp_path / "replica") as replica:
        assert_same(replica, source)


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
async def test_a_replica_goes_on_where_it_was_ended(
    source: MessageStore, tmp_path: Path, *, is_killed: bool
) -> None:
    random = Random(3)
    ends = sorted(random.sample(range(source.visible_offset), 12))
    for end in [*ends, source.visible_offset]:
        replica = await MessageStore.open(tmp_path / "replica", settings(is_replica=True), CLOCK)
        await catch_up(replica, source, random, until=end)
        await (abandon(replica) if is_killed else replica.close())

    async with open_replica(tmp_path / "replica") as replica:
        assert replica.log_max_offset == source.visible_offset
        assert_same(replica, source)


async def test_a_replica_that_lost_its_end_to_a_power_cut_goes_on_from_what_is_left(
    source: MessageStore, tmp_path: Path
) -> None:
    random = Random(4)
    replica = await MessageStore.open(tmp_path / "replica", settings(is_replica=True), CLOCK)
    await replica.upkeep.checkpoint()
    begins = await catch_up(replica, source, random)
    await abandon(replica)
    kept = random.choice(begins[len(begins) // 2 :]) + 100
    for path in (tmp_path / "replica" / "commitlog").iterdir():
        data = path.read_bytes()
        left = data[: max(kept - int(path.name), 0)]
        path.write_bytes(left.ljust(len(data), b"\0"))

    async with open_replica(tmp_path / "replica") as replica:
        assert replica.log_max_offset <= kept
        await catch_up(replica, source, random)
        assert_same(replica, source)


async def test_a_run_is_stored_even_if_its_caller_is_cancelled(
    source: MessageStore, tmp_path: Path
) -> None:
    async with open_replica(tmp_path / "replica", FlushMode.SYNC) as replica:
        run = b"".join(source.log.run(0, 10_000))
        copying = asyncio.create_task(replica.role.copy(memoryview(run), 0))
        await asyncio.sleep(0)
        copying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await copying

        assert replica.durable_offset == len(run)
        replica.role.confirm(len(run))
        await catch_up(replica, source, Random(13))
        assert_same(replica, source)


async def test_a_run_may_be_the_whole_log(source: MessageStore, tmp_path: Path) -> None:
    run = b"".join(source.log.run(0, 2**30))
    async with open_replica(tmp_path / "replica") as replica:
        await copied(replica, run)

        assert len(run) == source.visible_offset
        assert_same(replica, source)


async def test_runs_that_come_at_once_are_taken_one_after_another(
    source: MessageStore, tmp_path: Path
) -> None:
    async with open_replica(tmp_path / "replica", FlushMode.SYNC) as replica:
        runs, end = [], 0
        while end < source.visible_offset:
            run = b"".join(source.log.run(end, 9_000))
            runs.append(replica.role.copy(memoryview(run), end))
            end += len(run)
        await asyncio.gather(*runs)
        replica.role.confirm(end)

        assert_same(replica, source)


async def test_a_replica_takes_nothing_but_runs_and_only_a_replica_takes_any(
    source: MessageStore, tmp_path: Path
) -> None:
    async with open_replica(tmp_path / "replica") as replica:
        assert (replica.log_max_offset, list((tmp_path / "replica" / "commitlog").iterdir())) == (
            0,
            [],
        )
        with pytest.raises(NotMasterForSureError):
            await replica.change(TopicPut("orders", 1, 1, "rw"))
        with pytest.raises(NotMasterForSureError):
            replica.append_group([batch("orders", 0, [b"x"])])
    end = source.log_max_offset
    run = b"".join(source.log.run(0, 1))
    with pytest.raises(RefusedRunError, match=f"expected a run at log offset {end}, found 0"):
        await source.role.copy(memoryview(run), 0)


async def test_a_replica_that_becomes_a_broker_goes_on_as_its_source_would(
    source: MessageStore, tmp_path: Path
) -> None:
    async with open_replica(tmp_path / "replica") as replica:
        await catch_up(replica, source, Random(14))
    own = await MessageStore.open(tmp_path / "replica", settings(is_replica=False), CLOCK)
    assert_same(own, source)

    for store in (own, source):
        await store.append(batch("orders", 0, [b"one more"] * 3, keys="k1"))

    assert all_answers(own) == all_answers(source)
    assert own.state.log_id == source.state.log_id
    await own.close()
