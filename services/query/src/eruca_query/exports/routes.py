"""Exports over HTTP: plans, rows, and the meaning of the columns."""

from __future__ import annotations

from bisect import bisect_right
from typing import Annotated, Any, Final

from fastapi import Path, Query, Request, Response

from eruca.contract.access import Right
from eruca.contract.errors import (
    BrokerUnreachableError,
    DatabaseUnavailableError,
    MessageDamagedError,
    NameServerSettlingError,
    NoLiveBrokerError,
    NotAcceptableError,
    OverloadedError,
    PermissionDeniedError,
    QueueNotFoundError,
    RangeDeletedError,
    TopicNotFoundError,
    UnavailableError,
)
from eruca.contract.exports import (
    ARROW_MEDIA_TYPE,
    EXPORT_ROWS_HEADER,
    EXPORT_SCHEMA,
    NDJSON_MEDIA_TYPE,
    DamagedRows,
    ExportCodec,
    ExportPlan,
    ExportSchema,
    ExportTopics,
    MissingRows,
)
from eruca.contract.fields import Moment, TopicName
from eruca.contract.limits import (
    EXPORT_PARTITION_ROWS_DEFAULT,
    EXPORT_RANGE_COUNT_MAX,
    EXPORT_ROWS_MAX,
    EXPORT_START_SIZE_MAX,
    LIST_LIMIT_DEFAULT,
    LIST_LIMIT_MAX,
)
from eruca_access.needs import on_topic, to
from eruca_chassis.admission.gate import CallersAccess
from eruca_chassis.admission.needs import KNOWN, in_path
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.requests.cursors import decode_cursor, encode_cursor
from eruca_chassis.requests.time_ranges import check_order
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router
from eruca_query.exports import examples
from eruca_query.exports.export_response import ExportResponse
from eruca_query.exports.planner import PlanWish, plan_export
from eruca_query.exports.range_reader import RangeReader
from eruca_query.exports.requests import columns_of, form_of, ranges_of, starts_of
from eruca_query.exports.service import Exports
from eruca_query.exports.topic_brokers import topic_brokers
from eruca_query.exports.topic_list import exportable_topics

TAG: Final = {
    "name": "exports",
    "description": "Whole topics as tables: Arrow for lakes and data frames, NDJSON for the rest",
}
router = Router(prefix="/v1/exports", tags=["exports"])


Topic = Annotated[
    TopicName,
    Path(description="may be a system topic: `%DLQ%billing`, `ERUCA_SYS_EVENTS` …"),
]
_RECORDS: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The rows, range after range, in the order of their offsets.",
        "headers": {
            EXPORT_ROWS_HEADER: {
                "description": "the number of rows in a complete answer",
                "schema": {"type": "integer", "format": "int64"},
            }
        },
        "content": {
            ARROW_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}},
            NDJSON_MEDIA_TYPE: {"schema": {"type": "string"}, "example": examples.LINES},
        },
    }
}


@router.get(
    "/schema",
    operation_id="getExportSchema",
    needs=KNOWN,
    summary="Get the columns of exports",
    responses=answer(EXPORT_SCHEMA.model_dump(mode="json")),
)
async def get_export_schema() -> ExportSchema:
    """Return each column's name, Arrow type, Spark type, unit, and whether it may be null.

    In Arrow's own schema every field is nullable, as Spark declares columns by default.
    """
    return EXPORT_SCHEMA


@router.get(
    "/topics",
    operation_id="listExportTopics",
    needs=KNOWN,
    summary="List the topics that can be exported",
    responses=answer(examples.TOPICS)
    | problems(
        NameServerSettlingError, NoLiveBrokerError, UnavailableError, DatabaseUnavailableError
    ),
)
async def list_export_topics(
    exports: Part[Exports],
    access: CallersAccess,
    *,
    limit: Annotated[int, Query(ge=1, le=LIST_LIMIT_MAX)] = LIST_LIMIT_DEFAULT,
    cursor: Annotated[str | None, Query(max_length=512)] = None,
) -> ExportTopics:
    """Return topics by name, one page at a time. Continue with `next_cursor` until it is null.

    Besides the topics of live brokers, it lists those that the read model knows on a broker that no
    name server knows now. The plan of such a topic names that broker in `incomplete`. While the
    read model's database is away, there is no list. Topics of retries and dead letters are listed,
    system topics are not. Only topics are listed on which the caller has the right to query.
    """
    topics = await exportable_topics(exports.client, exports.find_others)
    if not access.is_open:
        topics = [topic for topic in topics if access.may(on_topic(topic, Right.QUERY))]
    after = decode_cursor(cursor)
    start = 0 if after is None else bisect_right(topics, after)
    page = topics[start : start + limit]
    has_more = start + limit < len(topics)
    return ExportTopics(topics=page, next_cursor=encode_cursor(page[-1]) if has_more else None)


@router.get(
    "/{topic}/plan",
    operation_id="planExport",
    needs=to(Right.QUERY, topic=in_path("topic")),
    summary="Plan the export of a topic",
    responses=answer(examples.PLAN)
    | problems(
        TopicNotFoundError,
        QueueNotFoundError,
        RangeDeletedError,
        BrokerUnreachableError,
        UnavailableError,
        DatabaseUnavailableError,
    ),
)
async def plan(
    topic: Topic,
    exports: Part[Exports],
    *,
    partition_rows: Annotated[
        int, Query(ge=1, le=EXPORT_ROWS_MAX, description="rows of a partition, at most")
    ] = EXPORT_PARTITION_ROWS_DEFAULT,
    start: Annotated[
        str | None,
        Query(
            max_length=EXPORT_START_SIZE_MAX,
            description="JSON object of the offsets to start at, by queue; other queues start "
            "with their first message. In place of an offset there may be an object of `offset`, "
            "`topic_id` and `latest_stored_at`, as an earlier plan returned them. Then the plan "
            "detects a topic that was created again, another log, and a log restored from an "
            "older copy",
            examples=['{"broker-a/0": 1000}'],
        ),
    ] = None,
    since: Annotated[Moment | None, Query(description="stored at or after this time")] = None,
    until: Annotated[Moment | None, Query(description="stored before this time")] = None,
    missing: Annotated[
        MissingRows,
        Query(
            description="if messages after a start have been deleted, or the topic is another "
            "one: answer 410, or continue with the messages that exist, and say so"
        ),
    ] = "refuse",
) -> ExportPlan:
    """Fix the messages to read: a range of offsets for each queue, all taken at one moment.

    The plan contains every message acknowledged before, on all brokers that a name server knows
    now; `incomplete` names others that have or had messages of the topic, or says that the read
    model's database is unreachable, so that nobody knows them. The ranges are split into partitions
    of about the same size, each to be read by one request for records. To continue later where this
    plan ends, plan again with each queue's `to_offset` as its `start`.
    """
    check_order(since, until, pointer="/query/since")
    wish = PlanWish(
        partition_rows=partition_rows,
        start=starts_of(start),
        from_time=since,
        to_time=until,
        missing=missing,
    )
    return await plan_export(await topic_brokers(exports.client, topic), wish, exports.find_missing)


@router.get(
    "/{topic}/records",
    operation_id="exportRecords",
    needs=to(Right.QUERY, topic=in_path("topic")),
    summary="Export the rows of ranges",
    response_class=Response,
    responses=_RECORDS
    | problems(
        TopicNotFoundError,
        QueueNotFoundError,
        PermissionDeniedError,
        MessageDamagedError,
        RangeDeletedError,
        NotAcceptableError,
        OverloadedError,
        BrokerUnreachableError,
        UnavailableError,
    ),
)
async def export_records(
    topic: Topic,
    exports: Part[Exports],
    request: Request,
    *,
    range_: Annotated[
        list[str],
        Query(
            alias="range",
            min_length=1,
            max_length=EXPORT_RANGE_COUNT_MAX,
            description="BROKER/QUEUE:FROM-TO, from one offset up to, not including, the other, "
            "followed by @TOPIC_ID as in a plan; "
            f"together they may have {EXPORT_ROWS_MAX} rows",
            examples=[["broker-a/0:0-1000"]],
        ),
    ],
    columns: Annotated[
        str | None,
        Query(
            max_length=1024,
            description="names of columns, separated by commas; default: all",
            examples=["queue_offset,tag,body"],
        ),
    ] = None,
    codec: Annotated[
        ExportCodec,
        Query(description="how Arrow compresses its buffers; readers decompress them themselves"),
    ] = "none",
    damaged: Annotated[
        DamagedRows,
        Query(
            description="if a message is damaged: answer 410, or mark it by a row that has only "
            "its place and its fault (`damage`), and null in all other columns"
        ),
    ] = "refuse",
) -> Response:
    """Return the messages of ranges as rows, as an Arrow stream or as NDJSON.

    Rows are in the order of the ranges, and of offsets within each. So a reader that has n rows
    knows which ones are missing, and requests those after a break. An incomplete answer ends
    without the last chunk of HTTP, and an Arrow stream without its end-of-stream marker;
    `eruca-export-rows` gives the number of rows in advance. An Arrow batch lies within one range,
    which its metadata name: `eruca.range`. A damaged message ends the answer unless `damaged=mark`.
    """
    ranges = ranges_of(range_)
    form = form_of(request.headers.get("accept"), columns_of(columns), codec, damaged)
    reader = RangeReader(
        topic,
        lambda: topic_brokers(exports.client, topic),
        exports.workers,
        ranges,
        form,
        patience_seconds=exports.patience_seconds,
    )
    return ExportResponse(
        exports.slots,
        reader,
        topic=topic,
        rows=sum(a_range.rows for a_range in ranges),
        encoder=form.encoder(),
    )
