"""A log that is read again from its beginning, beside the rows that answer."""

from __future__ import annotations

import pytest

from eruca_broker.core.state.events import TopicDeleted
from eruca_broker.core.state.group_events import CommittedOffset, OffsetsCommitted
from eruca_query.projection.forgotten import drop_broker
from eruca_query.projection.tables import PARTITIONED
from support.read_models import BROKER, T0, Log, ReadModel

pytestmark = pytest.mark.anyio


async def test_a_log_that_is_told_again_is_built_beside_what_answers_until_it_has_come_as_far(
    model: ReadModel, log: Log
) -> None:
    await model.fold_all(log)
    before = await model.rows()

    await model.fold(log.block(0, 6))
    building, serving = await model.offsets(serving=False), await model.rows()
    await model.fold(log.block(6, 12))

    assert building == log.offsets[:6]
    assert serving == before
    assert await model.rows() == before
    assert await model.rows(serving=False) == []
    assert model.counts.switches == 1
    assert await model.drop_old(T0) == 4  # the old rows' chunks are nobody's now
    assert len(await model.partitions()) == 2 * len(PARTITIONED)


async def test_what_the_log_does_not_hold_any_more_passes_on_to_the_rebuilt_rows(
    model: ReadModel, log: Log
) -> None:
    await model.fold_all(log)
    before = await model.rows()

    await model.fold_all(log, first=6)  # the first six have been deleted at the broker

    assert await model.rows() == before
    assert model.counts.switches == 1
    assert await model.drop_old(T0) == 2


async def test_a_chunk_in_which_the_log_begins_now_passes_on_up_to_there(
    model: ReadModel,
) -> None:
    log = Log()
    for number in range(8):
        log.tell(OffsetsCommitted("billing", [CommittedOffset("flights", 0, number)]))
        log.append(at_ms=T0 + number)
    last = len(log.records)
    await model.fold(log.block(0, 12))
    await model.fold(log.block(12, last))
    before = await model.rows(), await model.commits()

    await model.fold(log.block(6, last))

    assert (await model.rows(), await model.commits()) == before
    assert sum(count for *_, count in await model.served_chunks()) == len(before[0])
    spans = [(first, end) for first, end, _ in await model.served_chunks()]
    assert spans == [(0, log.offsets[6]), (log.offsets[6], log.offsets[-1])]


async def test_a_gap_in_which_the_log_begins_now_passes_on_up_to_there(
    model: ReadModel, log: Log
) -> None:
    await model.fold(log.block(0, 3))
    await model.fold(log.block(7, 12))

    await model.fold(log.block(5, 12))

    assert await model.offsets() == [*log.offsets[:3], *log.offsets[5:12]]
    assert await model.gaps() == [(log.offsets[3], log.offsets[5])]


@pytest.mark.parametrize("again", [False, True])
async def test_ends_of_topics_that_the_log_does_not_tell_any_more_pass_on(
    model: ReadModel,
    again: bool,
) -> None:
    log = Log()
    log.append()
    end = log.tell(TopicDeleted("flights"))
    for _ in range(4):
        log.append()
    if again:
        end = log.tell(TopicDeleted("flights"))
    await model.fold_all(log)

    await model.fold_all(log, first=3)

    assert model.counts.switches == 1
    assert await model.select("SELECT log_offset FROM topic_ends") == [(end,)]


async def test_being_told_again_twice_forgets_what_the_first_time_had_built(
    model: ReadModel, log: Log
) -> None:
    await model.fold_all(log)
    before = await model.rows()

    await model.fold(log.block(0, 6))
    model.restart()
    await model.fold(log.block(0, 3))
    assert await model.offsets(serving=False) == log.offsets[:3]
    await model.fold_all(log, first=3)

    assert await model.rows() == before
    await model.drop_old(T0)
    chunks = await model.chunks()
    assert sum(count for *_, count in chunks) == len(before)
    assert len(await model.partitions()) == len(chunks) * len(PARTITIONED)


async def test_what_is_deleted_while_the_log_is_told_again_passes_on_as_well(
    model: ReadModel, log: Log
) -> None:
    await model.fold_all(log)
    before = await model.rows()

    await model.fold(log.block(0, 3))
    await model.fold(log.block(6, 9))  # the first six have been deleted at the broker meanwhile
    await model.fold(log.block(9, 12))

    assert await model.rows() == before
    assert await model.gaps() == []
    assert await model.rows(serving=False) == []
    await model.drop_old(T0)
    chunks = await model.chunks()
    assert sum(count for *_, count in chunks) == len(before)


async def test_what_is_deleted_and_was_never_read_is_a_gap_while_the_log_is_told_again(
    model: ReadModel, log: Log
) -> None:
    await model.fold(log.block(0, 6))

    await model.fold(log.block(0, 3))
    await model.fold(log.block(8, 12))

    assert await model.offsets() == [*log.offsets[:6], *log.offsets[8:12]]
    assert await model.gaps() == [(log.offsets[6], log.offsets[8])]


async def test_a_log_that_has_lost_its_end_answers_with_what_it_holds(
    model: ReadModel, log: Log
) -> None:
    """The broker's disk was lost, or cut: its log is shorter than the rows."""
    await model.fold_all(log)
    shorter = Log(log.records[:4], log.offsets[:5])

    await model.fold_all(shorter)

    assert await model.offsets() == log.offsets[:4]


async def test_a_broker_that_comes_back_after_it_was_forgotten_has_nothing_of_what_it_had(
    model: ReadModel, log: Log
) -> None:
    await model.fold(log.block(0, 7))

    async with model.database.transaction() as connection:
        await drop_broker(connection, BROKER)
    hosts = await model.select("SELECT from_offset FROM store_hosts")
    await model.fold(log.block(7, 9))

    assert hosts == []
    assert await model.select("SELECT from_offset FROM store_hosts") == [(log.offsets[7],)]
    assert await model.drop_old(T0) == 1  # which is nobody's: of the one that was forgotten
    assert await model.offsets() == log.offsets[7:9]
