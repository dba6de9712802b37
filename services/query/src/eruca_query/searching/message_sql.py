"""Build the statements that find messages' rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Integer,
    Select,
    SmallInteger,
    column,
    exists,
    func,
    literal,
    or_,
    select,
    text,
    true,
    tuple_,
)
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA

from eruca.contract.properties import KEY_SEPARATOR
from eruca_query.core.key_hashes import key_hash
from eruca_query.core.page_queries import PageQuery
from eruca_query.core.time_buckets import TimeBuckets
from eruca_query.core.time_windows import Window
from eruca_query.core.unique_ids import stored_id
from eruca_query.projection.tables import NO_ID, messages, names
from eruca_query.searching.read_view import MESSAGE_COLUMNS

_BLANK: Final = literal(KEY_SEPARATOR.encode(), BYTEA)
CHUNKS_MAX: Final = 64  # partitions that one statement searches
READ_CHUNKS_MAX: Final = 4  # … if it may have to read all their rows of a topic


class QueuePosition(NamedTuple):
    """A group's position in one queue of the topic."""

    broker_no: int
    queue_id: int
    next_offset: int


def by_unique_id(unique_id: bytes, chunks: Sequence[int], limit: int) -> Select[Any]:
    """Return a statement for the first messages with a unique id, the oldest first."""
    its = messages.c
    code, other = stored_id(unique_id)
    return (
        select(*MESSAGE_COLUMNS)
        .where(
            its.chunk.in_(chunks),
            its.unique_id == UUID(bytes=code),
            its.unique_id != text(NO_ID),  # so that the partial index is used
            its.other_id == other,
            its.key_no == 0,
        )
        .order_by(its.stored_ms, its.log_offset, its.broker_no)
        .limit(limit)
    )


def by_log_offset(broker_no: int, log_offset: int, chunk: int) -> Select[Any]:
    """Return a statement for the message that a broker stored at a log offset."""
    return select(*MESSAGE_COLUMNS).where(
        messages.c.chunk == chunk,
        messages.c.log_offset == log_offset,
        messages.c.broker_no == broker_no,
        messages.c.key_no == 0,
    )


def any_of_topic(window: Window, *, topic_no: int, from_offset: int) -> Select[tuple[bool]]:
    """Return a statement for whether a window's chunks, all of one broker, have a topic's messages.

    Only messages from a log offset on count.
    """
    its = messages.c
    return select(
        exists().where(
            its.chunk.in_(window.chunks),
            its.topic_no == topic_no,
            its.stored_ms.between(window.from_ms, window.to_ms),
            its.key_no == 0,
            its.log_offset >= from_offset,
        )
    )


def topics_of(window: Window) -> Select[tuple[str]]:
    """Return a statement for the topics with messages in a window's chunks.

    It looks once into the index of each chunk for each name, however many messages there are.
    """
    its = messages.c
    found = (
        select(literal(1))
        .where(its.chunk.in_(window.chunks), its.topic_no == names.c.name_no, its.key_no == 0)
        .limit(1)
        .lateral()
    )
    return select(names.c.name).join(found, true())


def counts(
    window: Window, *, topic_no: int, buckets: TimeBuckets, ends: Mapping[int, int]
) -> Select[Any]:
    """Return a statement for numbers of messages: broker, bucket, count.

    Args:
        window: The chunks, and the stretch of time.
        topic_no: The topic's number.
        buckets: The stretches of time that are counted.
        ends: By broker number, the log offset at which the topic was deleted.
    """
    its = messages.c
    begin, width = literal(buckets.from_ms, BigInteger), literal(buckets.width_ms, BigInteger)
    bucket = ((its.stored_ms - begin) // width).label("bucket")
    statement: Select[Any] = (
        select(its.broker_no, bucket, func.count())
        .where(
            its.chunk.in_(window.chunks),
            its.topic_no == topic_no,
            its.stored_ms.between(
                max(window.from_ms, buckets.from_ms), min(window.to_ms, buckets.to_ms)
            ),
            its.key_no == 0,
        )
        .group_by(its.broker_no, text("bucket"))
    )
    for broker_no, end in ends.items():
        statement = statement.where(or_(its.broker_no != broker_no, its.log_offset >= end))
    return statement


def chunks_max(query: PageQuery, ends: Mapping[int, int]) -> int:
    """Return the number of partitions that one statement of a page may search in short time.

    No index leads to a tag, to a group's unread messages, or past the end of a deleted topic.
    """
    is_found_at_once = query.key is not None or not (query.tag or query.group or ends)
    return CHUNKS_MAX if is_found_at_once else READ_CHUNKS_MAX


def page(
    query: PageQuery,
    window: Window,
    *,
    topic_no: int,
    group_positions: Sequence[QueuePosition],
    ends: Mapping[int, int],
    limit: int,
) -> Select[Any]:
    """Return a statement for a page's messages within a window, the newest first.

    Args:
        query: The page's conditions.
        window: The chunks, and the stretch of time.
        topic_no: The topic's number.
        group_positions: The group's positions, if the query has a group.
        ends: By broker number, the log offset at which the topic was deleted.
        limit: The maximum of rows.
    """
    its = messages.c
    statement: Select[Any] = (
        select(*MESSAGE_COLUMNS)
        .where(
            its.chunk.in_(window.chunks),
            its.topic_no == topic_no,
            its.stored_ms.between(max(window.from_ms, query.from_ms), window.to_ms),
        )
        .order_by(its.stored_ms.desc(), its.log_offset.desc(), its.broker_no.desc())
        .limit(limit)
    )
    if query.key is None:
        statement = statement.where(its.key_no == 0)
    else:
        statement = statement.where(
            its.key_hash == key_hash(topic_no, query.key),
            its.key_hash != 0,  # so that the partial index is used
            # Other keys may have this hash: their rows must not use up the limit.
            func.position(_parted(literal(query.key, BYTEA)).op("IN")(_parted(its["keys"]))) > 0,
        )
    if query.tag is not None:
        statement = statement.where(its.tag == query.tag)
    if query.before is not None:
        before = tuple_(query.before.stored_ms, query.before.log_offset)
        statement = statement.where(tuple_(its.stored_ms, its.log_offset) <= before)
    for broker_no, end in ends.items():
        statement = statement.where(or_(its.broker_no != broker_no, its.log_offset >= end))
    if query.group is not None:
        statement = _for_group(statement, query, group_positions)
    return statement


def _parted(keys: ColumnElement[bytes]) -> ColumnElement[bytes]:
    """Return keys with the separator before the first and after the last one."""
    return _BLANK.op("||")(keys).op("||")(_BLANK)


def _for_group(
    statement: Select[Any], query: PageQuery, positions: Sequence[QueuePosition]
) -> Select[Any]:
    its = messages.c
    stands = (
        func.unnest(
            literal([position.broker_no for position in positions], ARRAY(SmallInteger)),
            literal([position.queue_id for position in positions], ARRAY(Integer)),
            literal([position.next_offset for position in positions], ARRAY(BigInteger)),
        )
        .table_valued(
            column("broker_no", SmallInteger),
            column("queue_id", Integer),
            column("next_offset", BigInteger),
            name="stands",
        )
        .render_derived()
    )
    is_past = exists().where(
        stands.c.broker_no == its.broker_no,
        stands.c.queue_id == its.queue_id,
        stands.c.next_offset > its.queue_offset,
    )
    return statement.where(is_past if query.group_state == "past" else ~is_past)
