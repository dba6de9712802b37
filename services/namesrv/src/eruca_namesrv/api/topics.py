"""Topics: list them, and serve the route of each."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final

from fastapi import Header, Query
from fastapi.responses import Response

from eruca.contract.errors import (
    NameServerSettlingError,
    NoLiveBrokerError,
    OverloadedError,
    TopicNotFoundError,
)
from eruca.contract.fields import TopicName, WaitSeconds
from eruca.contract.limits import LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX
from eruca.contract.routes import SETTLING_HEADER, TopicNames, TopicRoute
from eruca_access.needs import on_topic, see
from eruca_chassis.admission.gate import CallersAccess
from eruca_chassis.admission.needs import KNOWN, in_path
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.requests.cursors import decode_cursor, encode_cursor
from eruca_chassis.requests.entity_tags import is_known, known_tags, tagged_answer
from eruca_chassis.routes.direct_reads import Leaving
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router
from eruca_namesrv.api import examples
from eruca_namesrv.name_server import NameServer

router = Router(prefix="/v1/topics", tags=["topics"])

_ETAG_HEADER: Final[dict[str, Any]] = {
    "ETag": {"description": "changes exactly when the route does", "schema": {"type": "string"}}
}
_ROUTE_HEADERS: Final[dict[str, Any]] = {
    **_ETAG_HEADER,
    SETTLING_HEADER: {
        "description": "sent for a few seconds after the name server's start: brokers may be "
        "missing for this many more seconds; keep a fuller route until then",
        "schema": {"type": "integer"},
    },
}


@router.get(
    "",
    operation_id="listTopics",
    needs=KNOWN,
    summary="List the topics of all live brokers",
    responses=answer(examples.TOPICS) | problems(NameServerSettlingError, NoLiveBrokerError),
)
async def list_topics(
    names: Part[NameServer],
    access: CallersAccess,
    *,
    limit: Annotated[int, Query(ge=1, le=LIST_LIMIT_MAX)] = LIST_LIMIT_DEFAULT,
    cursor: Annotated[str | None, Query(max_length=512)] = None,
) -> TopicNames:
    """Return topics by name, one page at a time. Continue with `next_cursor` until it is null.

    Only topics on which the caller has a right are listed.

    While no broker is live it is unknown which topics exist: that is 503, not an empty list.
    """
    sees = None if access.is_open else lambda topic: access.may(on_topic(topic))
    topics, has_more = names.topic_names(decode_cursor(cursor), limit, sees)
    return TopicNames(topics=topics, next_cursor=encode_cursor(topics[-1]) if has_more else None)


@router.get(
    "/{topic}/route",
    operation_id="getRoute",
    needs=see(topic=in_path("topic")),
    summary="Get the queues of a topic and the brokers that hold them",
    response_model=TopicRoute,
    responses={
        200: {**answer(examples.ROUTE)[200], "headers": _ROUTE_HEADERS},
        304: {
            "description": "The route still has the ETag of If-None-Match",
            "headers": _ETAG_HEADER,
        },
        **problems(TopicNotFoundError, OverloadedError, NameServerSettlingError, NoLiveBrokerError),
    },
)
async def get_route(
    topic: TopicName,
    names: Part[NameServer],
    leaving: Leaving,
    *,
    wait_seconds: WaitSeconds = 0,
    require_settled: Annotated[
        bool,
        Query(description="503 instead of a route that may lack brokers not registered yet"),
    ] = False,
    if_none_match: Annotated[
        str | None, Header(max_length=1024, description="ETags of routes the client knows")
    ] = None,
) -> Response:
    """Return the topic's route, with each broker's URLs on every network.

    With `If-None-Match` and `wait_seconds` the request is held until the route changes (200),
    disappears (404), or the wait times out (304). With `wait_seconds` alone it is held until the
    topic exists.

    An ordered topic whose brokers are all away has a route with its order config and no queues.
    After the name server starts, an unknown topic is 503 instead of 404 until every broker has had
    time to register. While no broker is live at all, an unknown topic is 503, too.
    """
    if require_settled:
        names.require_settled()
    known = known_tags(if_none_match)
    route = await names.route(topic, known, wait_seconds, leaving)
    headers = {}
    if (settling := names.settling_seconds) > 0:
        headers[SETTLING_HEADER] = str(math.ceil(settling))
    body = None if is_known(route.etag, known) else route.body
    return tagged_answer(body, route.etag, headers=headers)
