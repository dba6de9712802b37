"""Find messages by key or unique id, without knowing their place: a hot route."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import msgspec
from fastapi import Path, Query

from eruca.contract.access import Right
from eruca.contract.errors import OverloadedError, TopicNotFoundError, ValidationError
from eruca.contract.fields import OFFSET_MAX, Moment, TopicName
from eruca.contract.limits import KEY_QUERY_COUNT_MAX, KEY_SIZE_MAX, PULL_SIZE_MAX
from eruca.contract.messages import FoundMessages
from eruca_access.needs import to
from eruca_broker.api.examples import messages as examples
from eruca_broker.api.parameters import PageCursor
from eruca_broker.core.records.rendering import render
from eruca_broker.core.records.times import ms_not_before
from eruca_broker.processors.budgets import ConsumeBudget
from eruca_broker.processors.find_messages import Finder
from eruca_broker.processors.replication.absence import Absence
from eruca_broker.store.reading.tiered_keys import FoundByKey
from eruca_chassis.admission.budget import client_of
from eruca_chassis.admission.needs import in_path
from eruca_chassis.connections.exchange import JSON_OK, Exchange, RequestHead
from eruca_chassis.counts import counted
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.requests.cursors import decode_cursor, encode_cursor
from eruca_chassis.requests.time_ranges import check_order
from eruca_chassis.routes.hot_router import HotEndpoint, HotRouter

router = HotRouter(prefix="/v1/topics", tags=["messages"])
_ENCODER: Final = msgspec.json.Encoder()


class _Wanted(NamedTuple):
    """A look-up: the content of its head."""

    topic: str
    key: str
    begin_ms: int
    end_ms: int
    limit: int
    before_offset: int | None


@router.hot(
    "GET",
    "/{topic}/messages",
    operation_id="findMessages",
    needs=to(Right.QUERY, topic=in_path("topic")),
    summary="Find messages by key or id",
    checks_texts=True,
    responses=answer(
        examples.FOUND_MESSAGES,
        model=FoundMessages,
        description="The messages, newest first; an empty list if there are none.",
    )
    | problems(TopicNotFoundError, OverloadedError),
)
class FindMessages(HotEndpoint):
    """Return the topic's messages on this broker that have the key, newest first, page by page.

    Every message acknowledged before the request is found. Follow `next_cursor` until it is null.
    Then `is_complete` is true, unless `damaged` lists records to which the index leads: they may
    have the key, or `incomplete` says what was not searched. A page ends with `limit` messages, or
    earlier if the bodies would make it too large. With a tier, it also ends where the broker's disk
    begins, and after a bounded part of the tier, perhaps without a message. A page of the tier is
    503 while that cannot be read. Messages stored meanwhile do not shift pages.
    """

    def __init__(self, finder: Finder, absence: Absence, in_flight: ConsumeBudget) -> None:
        self._finder = finder
        self._absence = absence
        self._in_flight = in_flight

    @staticmethod
    def read(
        head: RequestHead,
        topic: Annotated[TopicName, Path()],
        *,
        key: Annotated[
            str,
            Query(
                min_length=1,
                max_length=KEY_SIZE_MAX,
                description="one of the message's keys, or its unique id; compared exactly",
                examples=["UA1545"],
            ),
        ],
        since: Annotated[
            Moment | None,
            Query(
                description="only messages stored at this time or later",
                examples=["2026-11-21T08:00:00Z"],
            ),
        ] = None,
        until: Annotated[
            Moment | None,
            Query(
                description="only messages stored before this time",
                examples=["2026-11-22T08:00:00Z"],
            ),
        ] = None,
        limit: Annotated[int, Query(ge=1, le=KEY_QUERY_COUNT_MAX)] = 32,
        cursor: PageCursor = None,
    ) -> _Wanted:
        """Return the wanted messages."""
        check_order(since, until, pointer="/query/since")
        return _Wanted(
            topic,
            key,
            begin_ms=0 if since is None else ms_not_before(since),
            end_ms=OFFSET_MAX if until is None else ms_not_before(until) - 1,
            limit=limit,
            before_offset=_log_offset(cursor),
        )

    def handle(self, exchange: Exchange) -> None:
        """Answer with a page of the messages that are found."""
        wanted: _Wanted = exchange.request.meaning
        found = self._finder.by_key(
            wanted.topic,
            wanted.key,
            count_max=wanted.limit + 1,  # the last one only shows that there are more
            begin_ms=wanted.begin_ms,
            end_ms=wanted.end_ms,
            before_offset=wanted.before_offset,
            reader=client_of(exchange.client),
        )
        is_found = bool(found.records or found.damaged) or found.rest is not None
        self._absence.check(is_found=is_found)
        encoded = _ENCODER.encode(_page(found, wanted.limit))
        exchange.take(self._in_flight, len(encoded))
        exchange.answer(JSON_OK, encoded)


def _page(page: FoundByKey, limit: int) -> FoundMessages:
    """Return the first *limit* messages, or fewer if their bodies are large."""
    found = []
    room = PULL_SIZE_MAX
    for record in page.records[:limit]:
        if room <= 0:
            break
        message, body_size = render(record, body_room=room)
        found.append(message)
        room -= body_size
    before = page.rest
    if len(found) < len(page.records):
        before = page.records[len(found) - 1].log_offset
    incomplete = None
    if page.without_keys:
        incomplete = (
            f"not searched, because uploaded without keys: "
            f"{counted(len(page.without_keys), 'segment')} of the tier, from log offset "
            f"{min(page.without_keys)} on; the master adds keys if ERUCA_BROKER_TIER_RENEWAL is set"
        )
    return FoundMessages(
        messages=found,
        is_complete=before is None and not page.damaged and incomplete is None,
        next_cursor=None if before is None else encode_cursor(str(before)),
        damaged=page.damaged,
        incomplete=incomplete,
    )


def _log_offset(cursor: str | None) -> int | None:
    """Return the log offset before which a page begins; None: the log's end."""
    text = decode_cursor(cursor)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        detail = "expected a next_cursor of this look-up"
        raise ValidationError.at("/query/cursor", detail)
    return int(text)
