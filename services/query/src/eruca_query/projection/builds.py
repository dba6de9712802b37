"""Builds: versions of a broker's rows, one that serves and one that a rebuild fills.

The beginning of a block, compared with the end of the rows, decides what the block means::

    equal        the rows continue
    later        the broker has deleted the stretch between: a gap is recorded, the rows continue;
                 groups' positions are forgotten, since the log then begins with a snapshot of them
    earlier      the log is read again, because this was requested, or because the broker has lost
                 the end of it: a new build begins

A new build replaces the serving one when it has reached the same offset, or the end of the log. It
then takes over the part of the old one before its own beginning, which the log no longer holds:
chunks, gaps, addresses and ends of topics. Before that it has no gaps: if the log does not continue
there, another build begins instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import delete, func, insert, literal, select, update
from sqlalchemy.dialects.postgresql import insert as insert_or
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca.core.messages.log_block import LogBlock
from eruca_query.projection.chunks import cut_chunks
from eruca_query.projection.tables import (
    brokers,
    builds,
    chunks,
    damaged,
    gaps,
    group_positions,
    store_hosts,
    subscriptions,
    topic_ends,
)

_TOLD_BY_SNAPSHOTS: Final = (group_positions, subscriptions)  # with which a log begins
_OF_A_BUILD: Final = (*_TOLD_BY_SNAPSHOTS, topic_ends, gaps, store_hosts, damaged)


@dataclass(frozen=True, slots=True)
class Build:
    """The build to which a block is written."""

    broker_no: int
    number: int
    is_serving: bool
    serving: int
    serving_offset: int  # the end of the serving build


async def build_for(connection: AsyncConnection, broker_no: int, block: LogBlock) -> Build:
    """Return the build of *block*; begin a new one if the log is read again."""
    found = await connection.execute(
        select(builds)
        .where(builds.c.broker_no == broker_no)
        .order_by(builds.c.build)
        .with_for_update()
    )
    listed = found.all()
    rows = {row.is_serving: row for row in listed}
    assert len(rows) == len(listed), "two builds serve, or two are under way"
    if not rows:
        await _begin(connection, broker_no, 1, block.from_offset, is_serving=True)
        return Build(broker_no, 1, is_serving=True, serving=1, serving_offset=block.from_offset)
    serving, building = rows[True], rows.get(False)
    number = serving.build
    if building is not None and building.log_offset == block.from_offset:
        number = building.build
    elif building is not None or block.from_offset < serving.log_offset:
        if building is not None:
            await _end(connection, broker_no, building.build)
        number = max(row.build for row in rows.values()) + 1
        await _begin(connection, broker_no, number, block.from_offset, is_serving=False)
    if block.from_offset > serving.log_offset:
        await connection.execute(
            insert(gaps).values(
                broker_no=broker_no,
                build=number,
                from_offset=serving.log_offset,
                to_offset=block.from_offset,
                noticed_at=func.now(),
            )
        )
        for table in _TOLD_BY_SNAPSHOTS:
            await connection.execute(
                delete(table).where(table.c.broker_no == broker_no, table.c.build == number)
            )
    return Build(
        broker_no,
        number,
        is_serving=number == serving.build,
        serving=serving.build,
        serving_offset=serving.log_offset,
    )


async def advance(
    connection: AsyncConnection,
    build: Build,
    block: LogBlock,
    *,
    stored_ms: int | None,
    unreadable: int,
) -> bool:
    """Record that *block* is in the rows; return whether another build serves from now on."""
    its = builds.c
    is_this = (its.broker_no == build.broker_no) & (its.build == build.number)
    values = {"log_offset": block.next_offset, "unreadable": its.unreadable + unreadable}
    if stored_ms is not None:
        values["stored_ms"] = stored_ms
    await connection.execute(update(builds).where(is_this).values(values))
    if build.is_serving:
        # A rebuild request resets the position. A block that arrives here was read after that, and
        # the log has nothing to repeat.
        await _rebuilt(connection, build.broker_no)
        return False
    if block.next_offset < min(build.serving_offset, block.end_offset):
        return False
    await _pass_on(connection, build)
    await _end(connection, build.broker_no, build.serving)
    await connection.execute(update(builds).where(is_this).values(is_serving=True))
    await _rebuilt(connection, build.broker_no)
    return True


async def end_all(connection: AsyncConnection, broker_no: int) -> None:
    """Drop a broker's builds; upkeep drops their chunks."""
    for table in (*_OF_A_BUILD, builds):
        await connection.execute(delete(table).where(table.c.broker_no == broker_no))


async def _begin(
    connection: AsyncConnection,
    broker_no: int,
    number: int,
    from_offset: int,
    *,
    is_serving: bool,
) -> None:
    await connection.execute(
        insert(builds).values(
            broker_no=broker_no,
            build=number,
            is_serving=is_serving,
            from_offset=from_offset,
            log_offset=from_offset,
        )
    )


async def _pass_on(connection: AsyncConnection, build: Build) -> None:
    """Let a build take over the serving one's part of the log before its own beginning."""
    from_offset = await connection.scalar(
        select(builds.c.from_offset).where(
            builds.c.broker_no == build.broker_no,
            builds.c.build == build.number,
        )
    )
    assert isinstance(from_offset, int)
    await cut_chunks(connection, build.broker_no, build.serving, from_offset)
    for table, also in (
        (chunks, {"is_open": False}),
        (gaps, {"to_offset": func.least(gaps.c.to_offset, from_offset)}),
        (store_hosts, {}),
    ):
        await connection.execute(
            update(table)
            .where(
                table.c.broker_no == build.broker_no,
                table.c.build == build.serving,
                table.c.from_offset < from_offset,
            )
            .values(build=build.number, **also)
        )
    await connection.execute(
        update(damaged)
        .where(
            damaged.c.broker_no == build.broker_no,
            damaged.c.build == build.serving,
            damaged.c.log_offset < from_offset,
        )
        .values(build=build.number)
    )
    # A topic that was deleted again since then has its later end already.
    ends = select(
        topic_ends.c.broker_no,
        literal(build.number),
        topic_ends.c.topic_no,
        topic_ends.c.log_offset,
    ).where(
        topic_ends.c.broker_no == build.broker_no,
        topic_ends.c.build == build.serving,
        topic_ends.c.log_offset < from_offset,
    )
    await connection.execute(
        insert_or(topic_ends)
        .from_select(["broker_no", "build", "topic_no", "log_offset"], ends)
        .on_conflict_do_nothing()
    )


async def _end(connection: AsyncConnection, broker_no: int, number: int) -> None:
    """Drop a build; its chunks then have no owner, and upkeep drops them."""
    for table in (*_OF_A_BUILD, builds):
        await connection.execute(
            delete(table).where(table.c.broker_no == broker_no, table.c.build == number)
        )


async def _rebuilt(connection: AsyncConnection, broker_no: int) -> None:
    await connection.execute(
        update(brokers)
        .where(brokers.c.broker_no == broker_no, brokers.c.rebuild_requested_at.is_not(None))
        .values(rebuild_requested_at=None)
    )
