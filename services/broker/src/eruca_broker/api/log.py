"""The log itself: the feed, and one record, which is a hot route."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Final, NamedTuple

import msgspec
import structlog
from fastapi import Path, Query, Request, Response

from eruca.contract.access import Right
from eruca.contract.errors import (
    MessageDamagedError,
    NotAcceptableError,
    OverloadedError,
    RecordNotFoundError,
    StaleEpochError,
)
from eruca.contract.fields import Offset, WaitSeconds
from eruca.contract.limits import LOG_READ_SIZE_DEFAULT, LOG_READ_SIZE_MAX
from eruca.contract.messages import DamagedRecord, LogAnswer, LogRecordView
from eruca.contract.records import DamagedRecordError, Record, decode_record
from eruca.contract.wire import (
    DAMAGED_OFFSETS_HEADER,
    EPOCH_HEADER,
    JSON_MEDIA_TYPE,
    LOG_MEDIA_TYPE,
    MAX_OFFSET_HEADER,
    MIN_OFFSET_HEADER,
    NEXT_OFFSET_HEADER,
    OCTETS_MEDIA_TYPE,
)
from eruca_access.needs import to
from eruca_broker.api.answers import CountedResponse, held_size
from eruca_broker.api.examples import messages as examples
from eruca_broker.core.records.rendering import plain_body, render_log_record
from eruca_broker.processors.budgets import ConsumeBudget
from eruca_broker.processors.log_feed import LogFeed
from eruca_broker.store.reading.log_reader import LogRead
from eruca_chassis.admission.budget import client_of
from eruca_chassis.asgi import ClientGoneError, Receive
from eruca_chassis.connections.exchange import JSON_OK, AnswerHead, Exchange, RequestHead
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.documents.schemas import in_octets
from eruca_chassis.requests.negotiation import accept_of, choose
from eruca_chassis.routes.hot_router import HotEndpoint, HotRouter
from eruca_chassis.routes.parts import Part

router = HotRouter(prefix="/v1/log", tags=["log"])
_ENCODER: Final = msgspec.json.Encoder()
_OFFERED: Final = (LOG_MEDIA_TYPE, JSON_MEDIA_TYPE)
_OFFERED_FOR_ONE: Final = (JSON_MEDIA_TYPE, LOG_MEDIA_TYPE, OCTETS_MEDIA_TYPE)
_LOG: Final = in_octets(LOG_MEDIA_TYPE)
_LOG_OK: Final = AnswerHead(200, (b"content-type", LOG_MEDIA_TYPE.encode()))
_OCTETS_OK: Final = AnswerHead(200, (b"content-type", OCTETS_MEDIA_TYPE.encode()))
_OFFSET_SCHEMA: Final = {"schema": {"type": "integer", "format": "int64"}}

_log = structlog.get_logger()


@router.get(
    "",
    operation_id="readLog",
    needs=to(Right.QUERY, log=True),
    summary="Read the log from an offset",
    response_class=Response,
    responses=answer(
        examples.LOG_ANSWER,
        model=LogAnswer,
        description="The records, as stored in the log or in JSON.",
        beside=(_LOG,),
        headers={
            NEXT_OFFSET_HEADER: {"description": "the offset at which to continue"} | _OFFSET_SCHEMA,
            MIN_OFFSET_HEADER: {
                "description": "the log's current beginning, in the tier if there is one; while it "
                "is unknown what the tier has, the beginning on the broker's disk"
            }
            | _OFFSET_SCHEMA,
            MAX_OFFSET_HEADER: {"description": "its current end"} | _OFFSET_SCHEMA,
            EPOCH_HEADER: {
                "description": "the epoch of these records, for the next request; missing without "
                "replicas"
            }
            | _OFFSET_SCHEMA,
            DAMAGED_OFFSETS_HEADER: {
                "description": "the log offsets of damaged records, separated by commas; usually "
                "missing",
                "schema": {"type": "string"},
            },
        },
    )
    | problems(RecordNotFoundError, NotAcceptableError, StaleEpochError, OverloadedError),
)
async def read_log(
    request: Request,
    in_flight: Part[ConsumeBudget],
    feed: Part[LogFeed],
    *,
    from_offset: Annotated[
        Offset, Query(description="the log offset of a record, or the log's end", examples=[0])
    ],
    bytes_max: Annotated[
        int, Query(ge=1, le=LOG_READ_SIZE_MAX, description="the first record is always returned")
    ] = LOG_READ_SIZE_DEFAULT,
    wait_seconds: Annotated[
        WaitSeconds, Query(description="the time to wait at the end of the log")
    ] = 0,
    epoch: Annotated[
        Offset | None,
        Query(
            description="the epoch of the record before `from_offset`; the answer is 409 if the "
            "log has other records there",
            examples=[0],
        ),
    ] = None,
) -> Response:
    """Return whole records, back to back: everything visible, system topics included.

    At the end of the log the request is held until something is appended, or answered without
    records after `wait_seconds`. Continue from `eruca-next-offset`. It may be beyond the last
    record, if the rest of a segment is unused. An offset that retention has deleted, or at which no
    record starts, is 404. An offset from which damage prevents reading is 503, and so is one in the
    tier while that cannot be read. A damaged record whose size is known is returned as stored, and
    `eruca-damaged-offsets` names it. In JSON it is in `damaged` instead of `records`.

    A broker with replicas adds `eruca-epoch`. A reader that sends it back as `epoch` may continue
    at any replica. One that has not copied the log so far answers without records.
    """
    media_type = choose(accept_of(request.headers), _OFFERED)
    read = await feed.read(
        from_offset,
        bytes_max,
        wait_seconds,
        _leaving(request.receive),
        reader=client_of(request.client),
        epoch=epoch,
    )
    if read is None:
        raise ClientGoneError
    stretch = read.stretch
    if media_type == LOG_MEDIA_TYPE:
        headers = _headers(stretch, read.epoch)
        records = bytes(stretch.records) if stretch.is_copied else stretch.records
        return CountedResponse(in_flight, [records], LOG_MEDIA_TYPE, headers)
    text = _ENCODER.encode(_log_answer(stretch, from_offset, bytes_max, read.epoch))
    return CountedResponse(in_flight, [text], JSON_MEDIA_TYPE)


class _OfRecord(NamedTuple):
    """A request for one record: the content of its head."""

    log_offset: int
    media_type: str  # of the answer


@router.hot(
    "GET",
    "/records/{log_offset}",
    operation_id="getLogRecord",
    needs=to(Right.QUERY, log=True),
    summary="Show one record",
    checks_texts=True,
    responses=answer(
        examples.LOG_RECORD,
        model=LogRecordView,
        description="The record, as stored in the log or in JSON; or only its message's body.",
        beside=(_LOG, in_octets(OCTETS_MEDIA_TYPE)),
    )
    | problems(RecordNotFoundError, MessageDamagedError, NotAcceptableError, OverloadedError),
)
class GetLogRecord(HotEndpoint):
    """Return the record that starts at an offset of the log, of any topic.

    As `application/octet-stream` it is the message's body as it was sent, and nothing else.
    """

    def __init__(self, feed: LogFeed, in_flight: ConsumeBudget) -> None:
        self._feed = feed
        self._in_flight = in_flight

    @staticmethod
    def read(
        head: RequestHead,
        log_offset: Annotated[
            Offset, Path(description="the log offset of its first byte", examples=[8_201_544])
        ],
    ) -> _OfRecord:
        """Return the place of the record, and the requested form."""
        return _OfRecord(log_offset, choose(head.headers.get(b"accept"), _OFFERED_FOR_ONE))

    def handle(self, exchange: Exchange) -> None:
        """Answer with the record."""
        log_offset, media_type = exchange.request.meaning
        if media_type == LOG_MEDIA_TYPE:
            raw = self._feed.raw_record(log_offset, client_of(exchange.client))
            is_copied = isinstance(raw, bytes)
            exchange.take(self._in_flight, len(raw) if is_copied else held_size(len(raw)))
            exchange.answer(_LOG_OK, raw)
            return
        record = self._feed.record(log_offset, client_of(exchange.client))
        if media_type == OCTETS_MEDIA_TYPE:
            head, encoded = _OCTETS_OK, _body_of(record)
        else:
            view, _ = render_log_record(record, body_room=LOG_READ_SIZE_MAX)
            head, encoded = JSON_OK, _ENCODER.encode(view)
        exchange.take(self._in_flight, len(encoded))
        exchange.answer(head, encoded)


def _body_of(record: Record) -> bytes:
    body, compression = plain_body(record, LOG_READ_SIZE_MAX)
    if compression is not None:
        raise NotAcceptableError(
            f"the broker cannot decompress the body ({compression})",
            fix=f"set the header Accept: {JSON_MEDIA_TYPE}; body.compression names the format",
        )
    return body


def _headers(read: LogRead, epoch: int) -> dict[str, str]:
    headers = {
        NEXT_OFFSET_HEADER: str(read.next_offset),
        MIN_OFFSET_HEADER: str(read.min_offset),
        MAX_OFFSET_HEADER: str(read.max_offset),
    }
    if epoch:
        headers[EPOCH_HEADER] = str(epoch)
    if read.damaged:
        headers[DAMAGED_OFFSETS_HEADER] = ",".join(map(str, read.damaged))
    return headers


def _log_answer(read: LogRead, from_offset: int, bytes_max: int, epoch: int) -> LogAnswer:
    views: list[LogRecordView] = []
    damaged: list[DamagedRecord] = []
    next_offset = read.next_offset
    room = bytes_max
    for log_offset, record in _records(read, from_offset):
        if room <= 0:
            next_offset = log_offset
            break
        if isinstance(record, str):
            damaged.append(DamagedRecord(log_offset=log_offset, reason=record))
            continue
        view, body_size = render_log_record(record, body_room=room if views else LOG_READ_SIZE_MAX)
        views.append(view)
        room -= body_size
    return LogAnswer(
        records=views,
        damaged=damaged,
        next_offset=next_offset,
        min_offset=read.min_offset,
        max_offset=read.max_offset,
        epoch=epoch,
    )


def _records(read: LogRead, from_offset: int) -> Iterator[tuple[int, Record | str]]:
    """Yield each record with its log offset; for a damaged one, its fault."""
    view, position = read.records, 0
    while position < len(view):
        log_offset = from_offset + position
        is_sound = log_offset not in read.damaged
        try:
            yield log_offset, decode_record(view, position, check_crc=not is_sound)
        except DamagedRecordError as error:
            yield log_offset, str(error)
        position += int.from_bytes(view[position : position + 4])


def _leaving(receive: Receive) -> Callable[[], Awaitable[None]]:
    """Return a function that returns once the client of a request, whose body is read, is gone."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    return gone
