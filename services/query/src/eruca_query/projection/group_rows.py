"""Rows of groups: positions, the commits that moved them, subscriptions, and deleted topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Select, Table, delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca_postgres.copying import copy_values
from eruca_query.core.group_table import GroupChanges, GroupTable
from eruca_query.core.storable import storable
from eruca_query.projection.builds import Build
from eruca_query.projection.tables import group_positions, names, subscriptions, topic_ends

_COMMIT_COLUMNS: Final = (
    "log_offset",
    "at_ms",
    "next_offset",
    "chunk",
    "group_no",
    "topic_no",
    "queue_id",
    "broker_no",
    "is_back",
)


async def read_group_table(connection: AsyncConnection, broker_no: int, build: int) -> GroupTable:
    """Read the groups of one build from the rows."""
    table = GroupTable()
    for row in await connection.execute(_named(group_positions, broker_no, build)):
        queue = (row.topic_name, row.queue_id)
        table.put_position(row.group_name, queue, row.next_offset, row.source)
    for row in await connection.execute(_named(subscriptions, broker_no, build)):
        table.put_subscription(row.group_name, row.topic_name, row.filter, row.filter_type)
    return table


def _named(rows: Table, broker_no: int, build: int) -> Select[Any]:
    groups, topics = names.alias(), names.alias()
    return (
        select(groups.c.name.label("group_name"), topics.c.name.label("topic_name"), rows)
        .join(groups, groups.c.name_no == rows.c.group_no)
        .join(topics, topics.c.name_no == rows.c.topic_no)
        .where(rows.c.broker_no == broker_no, rows.c.build == build)
    )


async def write_group_changes(
    connection: AsyncConnection,
    build: Build,
    chunk: int,
    changes: GroupChanges,
    numbers: Mapping[str, int],
) -> None:
    """Write *changes* to the rows; *numbers* are those of all names in them."""
    await _delete_what_is_gone(connection, build, changes, numbers)
    await _write_positions(connection, build, changes, numbers)
    await _write_subscriptions(connection, build, changes, numbers)
    if changes.commits:
        await copy_values(
            connection,
            f"commits_{chunk}",
            _COMMIT_COLUMNS,
            (
                (
                    moved.log_offset,
                    moved.at_ms,
                    moved.next_offset,
                    chunk,
                    numbers[moved.group],
                    numbers[moved.topic],
                    moved.queue_id,
                    build.broker_no,
                    is_back,
                )
                for moved, is_back in changes.commits
            ),
        )


async def _delete_what_is_gone(
    connection: AsyncConnection,
    build: Build,
    changes: GroupChanges,
    numbers: Mapping[str, int],
) -> None:
    for table in (group_positions, subscriptions):
        own = (table.c.broker_no == build.broker_no) & (table.c.build == build.number)
        if changes.gone_groups:
            gone = [numbers[group] for group in changes.gone_groups]
            await connection.execute(delete(table).where(own, table.c.group_no.in_(gone)))
        if changes.gone_topics and table is group_positions:
            gone = [numbers[topic] for topic in changes.gone_topics]
            await connection.execute(delete(table).where(own, table.c.topic_no.in_(gone)))
    for topic, log_offset in changes.gone_topics.items():
        await connection.execute(
            insert(topic_ends)
            .values(
                broker_no=build.broker_no,
                build=build.number,
                topic_no=numbers[topic],
                log_offset=log_offset,
            )
            .on_conflict_do_update(
                constraint=topic_ends.primary_key, set_={"log_offset": log_offset}
            )
        )


async def _write_positions(
    connection: AsyncConnection,
    build: Build,
    changes: GroupChanges,
    numbers: Mapping[str, int],
) -> None:
    rows = [
        {
            "broker_no": build.broker_no,
            "build": build.number,
            "topic_no": numbers[topic],
            "queue_id": queue_id,
            "group_no": numbers[group],
            "next_offset": moved.next_offset,
            "at_ms": moved.at_ms,
            "source": moved.source,
        }
        for (group, (topic, queue_id)), moved in changes.positions.items()
    ]
    if not rows:
        return
    put = insert(group_positions)
    changed = {name: put.excluded[name] for name in ("next_offset", "at_ms", "source")}
    await connection.execute(
        put.on_conflict_do_update(constraint=group_positions.primary_key, set_=changed), rows
    )


async def _write_subscriptions(
    connection: AsyncConnection,
    build: Build,
    changes: GroupChanges,
    numbers: Mapping[str, int],
) -> None:
    if not changes.subscriptions:
        return
    own = (subscriptions.c.broker_no == build.broker_no) & (subscriptions.c.build == build.number)
    groups = [numbers[group] for group in changes.subscriptions]
    await connection.execute(delete(subscriptions).where(own, subscriptions.c.group_no.in_(groups)))
    rows = [
        {
            "broker_no": build.broker_no,
            "build": build.number,
            "group_no": numbers[group],
            "topic_no": numbers[topic],
            "filter": storable(text),
            "filter_type": storable(kind),
        }
        for group, its in changes.subscriptions.items()
        for topic, (text, kind) in its.items()
    ]
    if rows:
        await connection.execute(insert(subscriptions), rows)
