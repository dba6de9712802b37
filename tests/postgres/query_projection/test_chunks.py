"""Chunks of the read model: partitions that end by rows or time, and go as wholes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from eruca_query.projection.tables import PARTITIONED
from support.read_models import HOUR, T0, Log, ReadModel

pytestmark = pytest.mark.anyio


def partitions_of(chunks: Sequence[int]) -> list[str]:
    return sorted(f"{table}_{chunk}" for table in PARTITIONED for chunk in chunks)


async def test_a_chunk_is_a_partition_of_each_table_and_ends_after_so_many_rows(
    model: ReadModel, log: Log
) -> None:
    await model.fold_all(log)  # three messages, so six rows, a block

    assert [count for _, _, count in await model.chunks()] == [6, 6, 6, 6]
    assert await model.partitions() == partitions_of([1, 2, 3, 4])


async def test_a_chunk_ends_after_so_much_time(model: ReadModel) -> None:
    log = Log()
    times = [T0, T0 + HOUR - 1, T0 + HOUR, T0 + 3 * HOUR]
    for at_ms in times:
        log.append(at_ms=at_ms, keys="")
    await model.fold_all(log, step=1)

    assert await model.chunks() == [
        (times[0], times[1], 2),
        (times[2], times[2], 1),
        (times[3], times[3], 1),
    ]


@pytest.mark.parametrize("step", [1, 3])
async def test_a_chunk_tells_its_earliest_and_latest_time_wherever_a_clock_was_set_back(
    model: ReadModel, step: int
) -> None:
    log = Log()
    for at_ms in (T0, T0 + 5_000, T0 - 5_000):
        log.append(at_ms=at_ms, keys="")
    await model.fold_all(log, step=step)

    assert await model.chunks() == [(T0 - 5_000, T0 + 5_000, 3)]


async def test_retention_drops_whole_partitions_of_what_is_too_old(model: ReadModel) -> None:
    log = Log()
    for number in range(6):
        log.append(at_ms=T0 + number * HOUR)
    await model.fold_all(log, step=1)
    now = T0 + 5 * HOUR

    kept = await model.drop_old(now, retention_ms=10 * HOUR)
    dropped = await model.drop_old(now, retention_ms=2 * HOUR)
    again = await model.drop_old(now, retention_ms=2 * HOUR)

    assert (kept, dropped, again) == (0, 3, 0)
    assert await model.partitions() == partitions_of([4, 5, 6])
    assert await model.offsets() == log.offsets[3:6]


async def test_a_log_goes_on_after_retention_has_dropped_everything(
    model: ReadModel, log: Log
) -> None:
    await model.fold_all(log)
    await model.drop_old(T0 + 10 * HOUR)
    assert await model.partitions() == []
    log.append(at_ms=T0 + 10 * HOUR)

    await model.fold_all(log, first=12)

    assert await model.offsets() == log.offsets[12:13]
