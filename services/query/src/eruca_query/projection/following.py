"""The position that any instance has reached in each broker's log."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca.contract.queries import FollowedLog, Rebuild
from eruca_postgres.positions import LogPosition, read_positions
from eruca_postgres.tables import claims
from eruca_query.core.found_messages import moment
from eruca_query.projection.tables import brokers, builds, chunks, gaps


async def followed_logs(connection: AsyncConnection) -> list[FollowedLog]:
    """Return every broker that was ever followed, sorted by name."""
    living = select(claims.c.name, claims.c.holder).where(claims.c.expires_at >= func.now())
    holders = {row.name: row.holder for row in await connection.execute(living)}
    positions = await read_positions(connection)
    in_builds: dict[tuple[int, bool], Any] = {
        (row.broker_no, row.is_serving): row for row in await connection.execute(_builds())
    }
    return [
        _followed(
            broker,
            serving=in_builds.get((broker.broker_no, True)),
            building=in_builds.get((broker.broker_no, False)),
            position=positions.get(broker.broker_name),
            holder=holders.get(broker.broker_name),
        )
        for broker in await connection.execute(select(brokers).order_by(brokers.c.broker_name))
    ]


def _builds() -> Any:  # noqa: ANN401  # a statement
    """Return a statement for the builds and their sizes."""
    its = builds.c
    held = (
        select(
            func.coalesce(func.sum(chunks.c.row_count), 0).label("rows"),
            func.min(chunks.c.first_ms).label("oldest_ms"),
        )
        .where(chunks.c.broker_no == its.broker_no, chunks.c.build == its.build)
        .lateral()
    )
    missed = (
        select(func.count().label("gaps"))
        .where(gaps.c.broker_no == its.broker_no, gaps.c.build == its.build)
        .lateral()
    )
    return select(builds, held, missed)


def _followed(
    broker: Any,  # noqa: ANN401  # a row
    *,
    serving: Any,  # noqa: ANN401
    building: Any,  # noqa: ANN401
    position: LogPosition | None,
    holder: str | None,
) -> FollowedLog:
    log_offset = None if serving is None else serving.log_offset
    end_offset = None if position is None else position.end_offset
    behind = None
    if log_offset is not None and end_offset is not None:
        behind = max(end_offset - log_offset, 0)
    rebuild = None
    if building is not None or broker.rebuild_requested_at is not None:
        rebuild = Rebuild(
            requested_at=broker.rebuild_requested_at,
            from_offset=None if building is None else building.from_offset,
            log_offset=None if building is None else building.log_offset,
            end_offset=end_offset,
        )
    return FollowedLog(
        broker_name=broker.broker_name,
        log_offset=log_offset,
        end_offset=end_offset,
        behind_bytes=behind,
        as_of=None if serving is None or serving.stored_ms is None else moment(serving.stored_ms),
        read_at=None if position is None else position.updated_at,
        followed_by=holder,
        rows=0 if serving is None else serving.rows,
        oldest_stored_at=None
        if serving is None or serving.oldest_ms is None
        else moment(serving.oldest_ms),
        gaps=0 if serving is None else serving.gaps,
        rebuild=rebuild,
    )
